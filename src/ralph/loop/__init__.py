"""Drives one run: ask the machine for a step, carry it out, journal it, apply the result."""
