"""Entry point of the hook: Ralph runs `python -I .../ralph/guard/__main__.py` with its own interpreter."""

import sys

from ralph.guard.hook import run

run(sys.argv[1:])
