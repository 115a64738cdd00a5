"""One file per agent CLI: its command line, its output, its limits; `registry` lists them."""
