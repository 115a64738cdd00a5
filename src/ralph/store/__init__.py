"""Durable state, written only from here: journal, runs and their commands, tasks, bus, locks, files."""
