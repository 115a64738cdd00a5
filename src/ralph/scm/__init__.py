"""Git, and any other version control command: snapshots that lose nothing, commits of what is good."""
