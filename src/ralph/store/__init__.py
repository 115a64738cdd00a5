"""The only writer of durable state: journal, runs and their commands, tasks, bus, locks, files."""
