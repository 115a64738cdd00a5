"""`ralph work`: many tasks, each in its own worktree, then merged."""
