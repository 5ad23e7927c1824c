"""What bounds each case, from profiles, written by hand: the page shows it below the case's figures."""

from __future__ import annotations

from typing import Dict

_LIKE_1_KB = "the CPU of the whole machine, as with 1 KB."
_TARGET_UNPACKS = (
    "the CPU of the whole machine, of which the target broker takes half: it unpacks each batch to check it, 1 s for a "
    "million records. The tasks, which unpack nothing, take 0.5 s, so without them it would be twice the rate at most."
)

BOUNDS: Dict[str, str] = {
    "bytes100": _LIKE_1_KB,
    "bytes1000": "the CPU of the whole machine. For a GB the tasks take 1.5 to 2 s of CPU, measured without Spark; a "
    "bare loop that fetches and sends the same bytes takes 0.6 s of it, the rest are one copy, both CRCs and the "
    "requests. The brokers take 2 to 3 s, mostly the target's. Spark's JVM touches no byte; its "
    "start is still being compiled in the copy's first seconds, which with the driver is what is left: 1 to 2 s.",
    "bytes10000": _LIKE_1_KB,
    "json.lz4": _TARGET_UNPACKS,
    "json.zstd": _TARGET_UNPACKS,
    "single": "re-encoding: batches of few records are joined in Python, record by record.",
    "select": "CPU, most of it Java's: Spark's Kafka source makes a row of each record, and each row goes to Python by "
    "Arrow. Java compiles that way through the first millions of records. "
    "The figures above are without its second compiler; of 5 million records it was since then 172 000 records/s and "
    "7.3 s of CPU a million, and 133 000 and 9.9 without; tuned MirrorMaker 2 went at 93 000 next to cold brokers in "
    "that round, and at 131 000 in another (one round each).",
    "filter": "Spark's Kafka source and `get_json_object`, for ten records that are read and one that is copied. "
    "MirrorMaker reads the records too, but looks only at their headers.",
    "far": "the round trip, with CPU. A task has one fetch of at most 16 MB in flight to a broker; while it takes an "
    "answer apart, nothing is on its way. A second one in flight would hide the round trip. The figures "
    "above are with fetches of 8 MB; with 16 MB, since then, it was 361 000 and 373 000 records/s, and 199 000 and "
    "218 000 with 8 MB, in turn (two rounds, MirrorMaker not among them).",
    "small": "start-up: Java, Spark's session, the first Delta commits. The copy itself takes a fraction of a second.",
}
