import sys

from ralph.cli import main

sys.exit(main())
