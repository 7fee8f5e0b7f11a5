"""`python -m jaxprivnb` is `jaxprivnb`."""

import sys

from jaxprivnb.cli import main

if __name__ == "__main__":  # worker processes import this file under another name
    sys.exit(main())
