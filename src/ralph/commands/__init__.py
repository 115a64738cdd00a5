"""One file per subcommand: options in, exit code out."""
