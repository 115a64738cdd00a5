"""`python -I .../ralph/guard/__main__.py`: how the harness calls the hook, with its own interpreter."""

import sys

from ralph.guard.hook import run

run(sys.argv[1:])
