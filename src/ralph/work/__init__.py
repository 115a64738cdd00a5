"""`ralph work`: runs many tasks, each in its own worktree, and merges them."""
