"""The driver of one run, and what it acts with: it asks the machine for a step, does it, journals it, applies it."""
