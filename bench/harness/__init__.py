"""One adapter per harness. Each calls nothing but the public command line."""
