"""Gives a copy of a project the environment of the user's checkout, with nothing that leads back there."""
