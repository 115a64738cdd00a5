"""Git and other version control commands: snapshots, rewinding, commits, worktrees, diffs."""
