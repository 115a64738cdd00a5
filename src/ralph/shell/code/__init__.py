"""Code of other languages that a command carries."""
