"""A dead letter topic on a real broker, and one life that appends to it."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, List

from mirror_lib.log.varint import encode_varint
from mirror_lib.records.dead_letters import DeadLetter, DeadLetters
from tests.lab.brokers import KafkaBroker
from tests.lab.one_flow import OneFlow
from tests.lab.one_lane import task_plans
from tests.lab.readers import read_topic


def letter(offset: int) -> DeadLetter:
    """As Spark makes one, of a record without a key or a value."""
    headers = [("cluster", "source"), ("topic", "orders"), ("partition", "0"), ("offset", str(offset))]
    cells = [*((f"mirror.source.{name}", value) for name, value in headers), ("mirror.error", "no value")]
    told = b"".join(encode_varint(len(each)) + each.encode() for cell in cells for each in cell)
    nothing = encode_varint(-1)
    return DeadLetter(("orders", 0, offset), 0, 1000 + offset, nothing + nothing + encode_varint(len(cells)) + told)


def test_life_that_falls_back_behind_what_it_remembers_appends_no_letter_twice(
    source_cluster: KafkaBroker, target_cluster: KafkaBroker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    flow = OneFlow(source_cluster, target_cluster, topic_name("orders"), tmp_path)
    flow.fill(1)
    flow.create_remote_topic()
    topic = target_cluster.create_topic(topic_name("dead"), 1, retention_ms="-1")
    (plan,) = task_plans(flow)
    life = DeadLetters(topic)
    # The last: the tail of a remote log was lost, and the flow goes on from where that ends.
    passes: List[List[int]] = [[0, 5], [20, 25], [3, 5, 7, 25]]
    for start, *offsets in passes:
        life.append(plan, [letter(each) for each in offsets], {("orders", 0): start})
    records = [record for log in read_topic(target_cluster, topic).values() for record in log.values()]
    assert [dict(record.headers)["mirror.source.offset"] for record in records] == [b"5", b"25", b"7"]
