"""The pure core: values and decisions. No I/O, no clock, no randomness, standard library only."""
