"""One file per agent CLI, with its command line, output format and limits. `registry` lists them."""
