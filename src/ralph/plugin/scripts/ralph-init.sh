#!/bin/sh
# Sets up ralph/ in a project.
# Options: --project-dir PATH, --name FEATURE_NAME, -h
if ! command -v ralph >/dev/null 2>&1; then
    echo "ralph-init.sh: the ralph command is not installed, or not on PATH." >&2
    echo "  Install the package ralph-harness (from a clone of it: make install)." >&2
    exit 2
fi
exec ralph prd init "$@"
