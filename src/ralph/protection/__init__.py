"""Finds the files that a check consists of, by reading its commands."""
