"""What bounds each case, from profiles, written by hand: the page shows it below the case's figures."""

from __future__ import annotations

from typing import Dict

_LIKE_1_KB = "the CPU of the whole machine, as with 1 KB."

BOUNDS: Dict[str, str] = {
    "bytes100": _LIKE_1_KB,
    "bytes1000": "the CPU of the whole machine. For a GB the tasks take 1.5 to 2 s of CPU, measured without Spark; a "
    "bare loop that fetches and sends the same bytes takes 0.6 s of it, the rest are one copy, both CRCs and the "
    "requests. The brokers take 2 to 3 s, mostly the target's. Spark's JVM touches no byte; its "
    "start is still being compiled in the copy's first seconds, which with the driver is what is left: 1 to 2 s.",
    "bytes10000": _LIKE_1_KB,
    "json.lz4": f"{_LIKE_1_KB} Nothing is unpacked, so fewer bytes are moved.",
    "json.zstd": f"{_LIKE_1_KB} Nothing is unpacked, so fewer bytes are moved.",
    "single": "re-encoding: batches of few records are joined in Python, record by record.",
    "select": "CPU, most of it Java's: Spark's Kafka source makes a row of each record, and each row goes to Python by "
    "Arrow. Java compiles that way through the first million records.",
    "filter": "Spark's Kafka source and `get_json_object`, for ten records that are read and one that is copied. "
    "MirrorMaker reads the records too, but looks only at their headers.",
    "far": "the round trip. A task has one fetch of at most 8 MB in flight to a broker; while it takes an answer apart "
    "and appends it, nothing is on its way. A second one in flight would hide the round trip.",
    "small": "start-up: Java, Spark's session, the first Delta commits. The copy itself takes a fraction of a second.",
}
