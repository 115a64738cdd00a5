"""The command guard: rules over `shell` that deny destructive commands before they run."""
