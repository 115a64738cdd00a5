"""The subcommands, one file each. A command takes its options and returns the exit code."""
