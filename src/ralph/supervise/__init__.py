"""`ralph supervise`: a task folder and a command become a plan."""
