"""`ralph init` and `ralph plugin`: what a project and Claude Code are given."""
