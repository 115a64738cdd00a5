#!/bin/sh
# Runs the loop until every story is approved.
# Options: -n N, --ralph-dir PATH, -d PATH, -m MODEL, --sandbox, --no-sandbox, --skip-review, --review-cap N, -h
if ! command -v ralph >/dev/null 2>&1; then
    echo "ralph.sh: the ralph command is not installed, or not on PATH." >&2
    echo "  Install the package ralph-harness (from a clone of it: make install)." >&2
    exit 2
fi
exec ralph prd run "$@"
