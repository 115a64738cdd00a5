"""`ralph supervise`: makes a plan from a task folder and a command."""
