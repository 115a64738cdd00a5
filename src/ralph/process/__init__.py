"""The only code that starts or ends a process: the warden and its client."""
