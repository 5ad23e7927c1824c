"""What bounds each case, from profiles, written by hand: the page shows it below the case's figures."""

from __future__ import annotations

from typing import Dict

_LIKE_1_KB = "the CPU of the whole machine, as with 1 KB."

BOUNDS: Dict[str, str] = {
    "bytes100": _LIKE_1_KB,
    "bytes1000": "the CPU of the whole machine, of which the brokers take half or more: they check and write each "
    "batch. In the worker no record is touched, so cost goes by bytes: of a million KB, 0.35 s go into receiving fetch "
    "answers and taking them apart, 0.2 s into both CRCs and new headers, 0.2 s into produce requests, and the rest "
    "into the kernel's socket copies.",
    "bytes10000": _LIKE_1_KB,
    "json.lz4": f"{_LIKE_1_KB} Nothing is unpacked, so fewer bytes are moved.",
    "json.zstd": f"{_LIKE_1_KB} Nothing is unpacked, so fewer bytes are moved.",
    "single": "re-encoding: batches of few records are joined in Python, record by record.",
    "far": "the round trip. A task has one fetch of at most 8 MB in flight to a broker; while it takes an answer apart "
    "and appends it, nothing is on its way. A second one in flight would hide the round trip.",
    "small": "start-up: Java, Spark's session, the first Delta commits. The copy itself takes a fraction of a second.",
}
