"""Code in other languages that a command contains."""
