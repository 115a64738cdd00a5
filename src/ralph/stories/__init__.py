"""The rules of a PRD loop: its task list, modes, legal changes, and undoing others. Standard library only."""
