"""The report of a run or a task: gathered once from the store, written as HTML, Markdown or JSON."""
