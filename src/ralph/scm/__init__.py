"""Git, and any other version control command: snapshots, going back, commits, worktrees, diffs."""
