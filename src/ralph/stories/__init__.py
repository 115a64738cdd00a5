"""The rules of a PRD loop: the form of its task list, its modes, legal changes, what is undone. Pure, standard library only."""
