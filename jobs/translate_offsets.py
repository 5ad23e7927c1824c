"""The second job for spark-submit: the arguments of `mirror translate` in, its exit code out."""

from __future__ import annotations

import sys

from mirror_lib.cli import main

if __name__ == "__main__":
    sys.exit(main(["translate", *sys.argv[1:]]))
