"""Which files a check is made of."""
