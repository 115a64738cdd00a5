"""`ralph tui`: every run on the machine in one terminal. It reads the store, and writes commands to it."""
