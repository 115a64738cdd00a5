"""A model server that plays a script, so that the real agent CLIs can be driven offline."""
