"""`python -m jaxprivnb` is `jaxprivnb`."""

import sys

from jaxprivnb.cli import main

sys.exit(main())
