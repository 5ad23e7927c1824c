"""Python imports this first when its folder is on PYTHONPATH: its clock is wrong by LAB_CLOCK seconds; with `jumps`, by
as many seconds ahead and behind in turn, changing every ten seconds. Waits are not affected: they use another clock."""

from __future__ import annotations

import os
import time

LAB_CLOCK = os.environ.get("LAB_CLOCK", "")
_true = time.time


def wrong() -> float:
    seconds, _, jumps = LAB_CLOCK.partition(" ")
    sign = -1 if jumps and int(_true() / 10) % 2 else 1
    return _true() + sign * float(seconds)


if LAB_CLOCK:
    time.time = wrong
