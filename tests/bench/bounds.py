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
    "bytes10000": "the CPU of the whole machine, as with 1 KB. A byte's cost counts here, not a record's: MirrorMaker "
    "spends 3.5 s of CPU on a GB, and 9.5 where records have 1 KB; the mirror 1.3 and 1.4.",
    "json.lz4": _TARGET_UNPACKS,
    "json.zstd": _TARGET_UNPACKS,
    "partitions1000": "the brokers, which take 1.5 of 1.8 busy cores: they make and open a thousand logs, and answer "
    "for each of them. The first record waits for that as well, ten seconds more than with 4 partitions.",
    "single": "re-encoding: batches of few records are joined in Python, record by record.",
    "select": "CPU, most of it Java's: Spark's Kafka source makes a row of each record, and each row goes to Python by "
    "Arrow. Java compiles that way through the first millions of records, so small topics go slower: of 1.6 million it "
    "was 0.74 of MirrorMaker's rate.",
    "filter": "`get_json_object`, Spark's own: two thirds of the tasks' time in Java, most of it in decoding UTF-8 and "
    "in setting up a parser for each value (Java Flight Recorder). MirrorMaker looks only at the headers.",
    "filter.bytes": "CPU: Spark's search of each value for the words, 1.9 s for a million records more than a look at "
    "the headers. JSON is taken apart of one in ten.",
    "filter.header": "CPU, 1.8 of 2 cores. Of the driver's Java in a whole run (30 s): the tasks 12, compilers 7, "
    "collecting 2, planning and ledger 6. Of the tasks' time in Java Spark's Kafka source has half (382 of 718 "
    "samples, 204 of them Kafka's client, 86 the making of rows), the filter itself 20. Java goes on compiling to the "
    "end of the run: the best round, with warm brokers, had MirrorMaker's rate.",
    "mask": "as with `select`.",
    "far": "the round trip, with CPU. A task has one fetch of at most 16 MB in flight to a broker; while it takes an "
    "answer apart, nothing is on its way. A second one in flight would hide the round trip.",
    "backlog": "as with 1 KB, and seven seconds of start-up, a fourth of the run. MirrorMaker and the brokers are warm "
    "for most of it: 198,000 records/s, and 143,000 with less to copy.",
    "small": "start-up: Java, Spark's session, the first Delta commits. The copy itself takes a fraction of a second.",
}
