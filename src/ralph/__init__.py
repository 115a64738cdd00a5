"""Ralph runs a coding agent again and again until the work is proved done."""

__version__ = "0.1.0"
