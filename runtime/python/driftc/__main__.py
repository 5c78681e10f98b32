"""Runs the program `driftc`: `python -m driftc ARGUMENTS`."""

import subprocess
import sys

from .compiler import program

if __name__ == "__main__":
    sys.exit(subprocess.call([program(), *sys.argv[1:]]))
