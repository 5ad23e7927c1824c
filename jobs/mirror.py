"""The main job for spark-submit: takes the arguments of `mirror run`, or `mm1` and its arguments, and ends with that
exit code."""

from __future__ import annotations

import sys

from mirror_lib.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] if sys.argv[1:2] == ["mm1"] else ["run", *sys.argv[1:]]))
