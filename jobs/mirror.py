"""The main job for spark-submit: the arguments of `mirror run` in, its exit code out."""

from __future__ import annotations

import sys

from mirror_lib.cli import main

if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))
