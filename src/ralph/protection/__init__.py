"""Which files a check is made of, read from its commands."""
