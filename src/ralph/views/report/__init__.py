"""The report of a run or a task: gathered once from the store, written as a page, as Markdown or as JSON."""
