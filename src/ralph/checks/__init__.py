"""One file per way to find out whether a claim is true; `registry` lists them."""
