"""Where agents and checks run: the backends of a ladder, one file each."""
