"""One file per agent CLI, all behind the Protocol in `base`; `registry` lists them."""
