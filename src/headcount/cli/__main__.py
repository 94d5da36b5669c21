"""`python -m headcount.cli`."""

import sys

from headcount.cli import main

sys.exit(main())
