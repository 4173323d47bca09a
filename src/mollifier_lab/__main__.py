"""Run the command as ``python -m mollifier_lab``, for when `mollifier` is not on the path."""

import sys

from mollifier_lab.cli import main

if __name__ == "__main__":  # worker processes import this file as well
    sys.exit(main())
