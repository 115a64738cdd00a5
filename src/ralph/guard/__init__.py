"""The command guard: rules on top of `shell` that deny destructive commands before they run."""
