"""A model server that plays a script, so that real agent CLIs can run offline."""
