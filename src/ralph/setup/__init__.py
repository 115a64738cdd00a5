"""`ralph init` and `ralph plugin`: write a project's settings, install the Claude Code plugin."""
