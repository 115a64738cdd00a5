"""One run being driven: ask the machine for a step, do it, journal it, apply it."""
