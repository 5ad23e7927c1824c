"""What bounds each case, from profiles, written by hand: the page shows it below the case's figures."""

from __future__ import annotations

from typing import Dict

_LIKE_1_KB = "the CPU of the whole machine, as with 1 KB, and Java's start within so short a copy."

BOUNDS: Dict[str, str] = {
    "bytes100": _LIKE_1_KB,
    "bytes1000": "the CPU of the whole machine. The copy takes three seconds, and Spark's JVM is still compiling its "
    "own start then. With 4 million records in one run (217 000 records/s, 1.6 times tuned MirrorMaker 2) the JVM used "
    "8 CPU seconds in the first ten of the copy and 3 in the ten after, the workers 16.6 in all, the brokers as much. "
    "In the worker no record is touched, so cost goes by bytes: receiving, both CRCs, new headers, and the kernel's "
    "socket copies.",
    "bytes10000": _LIKE_1_KB,
    "json.lz4": f"{_LIKE_1_KB} Nothing is unpacked, so fewer bytes are moved.",
    "json.zstd": f"{_LIKE_1_KB} Nothing is unpacked, so fewer bytes are moved.",
    "single": "re-encoding: batches of few records are joined in Python, record by record.",
    "far": "the round trip. A task has one fetch of at most 8 MB in flight to a broker; while it takes an answer apart "
    "and appends it, nothing is on its way. A second one in flight would hide the round trip.",
    "small": "start-up: Java, Spark's session, the first Delta commits. The copy itself takes a fraction of a second.",
}
