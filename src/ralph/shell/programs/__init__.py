"""What well-known programs do: what they run in turn, and what they print."""
