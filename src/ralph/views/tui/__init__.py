"""`ralph tui`: all runs on this machine in one terminal. Reads the store and writes commands to it."""
