#!/bin/sh
# Archives a loop and resets ralph/.
# Options: --project-dir PATH, --label LABEL, -h
if ! command -v ralph >/dev/null 2>&1; then
    echo "ralph-archive.sh: the ralph command is not installed, or not on PATH." >&2
    echo "  Install the package ralph-harness (from a clone of it: make install)." >&2
    exit 2
fi
exec ralph prd archive "$@"
