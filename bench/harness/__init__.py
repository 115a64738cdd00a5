"""One adapter per harness. Each uses only the public command line."""
