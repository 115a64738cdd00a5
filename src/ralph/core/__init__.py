"""The machine of one run, the board of many, and the values they decide on. Pure: no I/O, no clock, no randomness."""
