"""Emulations of common programs: which commands they run in turn, and what they print."""
