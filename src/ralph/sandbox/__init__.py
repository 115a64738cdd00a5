"""Where agents and checks run: the rungs of a ladder, one file each."""
