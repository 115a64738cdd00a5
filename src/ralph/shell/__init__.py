"""One reader of shell commands: what a command runs, reads, writes and prints, without running it. No rules."""
