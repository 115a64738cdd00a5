"""Reads shell commands: what a command would run, read, write and print, without running it. It contains no rules."""
