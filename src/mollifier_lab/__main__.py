"""``python -m mollifier_lab``: the command where it is not on the path."""

import sys

from mollifier_lab.cli import main

if __name__ == "__main__":  # a worker process imports this file, too
    sys.exit(main())
