"""One file per verification method. `registry` lists them."""
