"""One file per subcommand; each has a click command named `command`."""
