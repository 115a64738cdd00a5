"""The only code that starts or stops processes: the warden and its client."""
