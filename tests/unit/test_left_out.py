"""What `on.error: skip` left out stands in the report, by partition, and changes no verdict."""

from __future__ import annotations

import json

from mirror_lib.ledger.records import LeftOut
from mirror_lib.text import as_json
from mirror_lib.verify.flow import with_left_out
from mirror_lib.verify.verdicts import EQUAL, PartitionVerdict, TopicVerdict, VerifyReport, report_lines

REPORT = VerifyReport(
    "A->B", (TopicVerdict("orders", "A.orders", tuple(PartitionVerdict(n, 9, EQUAL) for n in (0, 1))),)
)


def test_each_partition_tells_how_many_offsets_and_which() -> None:
    report = with_left_out(REPORT, {("orders", 1): LeftOut(7, ((5, 6), (9, 12))), ("others", 0): LeftOut(1, ((0, 1),))})
    assert report.equal
    assert report_lines(report)[-1] == (
        "orders-1: on.error: skip left out 7 offsets, they are not on the target: 5, 9 to 11, and more"
    )
    (topic,) = json.loads(as_json(report))["topics"]
    assert [each["left_out"] for each in topic["partitions"]] == [None, {"offsets": 7, "ranges": [[5, 6], [9, 12]]}]


def test_nothing_is_said_where_nothing_was_left_out() -> None:
    assert report_lines(with_left_out(REPORT, {})) == report_lines(REPORT)
