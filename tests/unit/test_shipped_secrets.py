"""What a stage of many partitions broadcasts, so that disks hold it, has no password in it."""

from __future__ import annotations

import pickle
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List

import pytest

from mirror_lib.kafka.record_batch import Producer
from mirror_lib.replication import stage
from mirror_lib.replication.messages import TaskPlan
from mirror_lib.rows import stage as rows_stage
from mirror_lib.rows.partition import LaneTask
from mirror_lib.rows.writer import LaneKey, RowsPlan
from mirror_lib.spark.jobs import SMALL_BYTES
from tests.unit.logs import task_of

CANARY = "hunter2"
LOGIN = {"sasl_plain_username": "mirror", "sasl_plain_password": CANARY}
PARTITIONS = 20_000


class Shipped(BaseException):
    """Ends a stage where it would begin."""


def shipped_by(run: Any, module: Any, monkeypatch: pytest.MonkeyPatch) -> bytes:
    seen: List[bytes] = []

    @contextmanager
    def recorded(spark: object, value: object, secret: object) -> Iterator[None]:
        assert CANARY.encode() in pickle.dumps(secret)  # what travels otherwise
        seen.append(pickle.dumps(value))
        raise Shipped
        yield

    monkeypatch.setattr(module, "shipped", recorded)
    with pytest.raises(Shipped):
        run()
    return seen[0]


def test_plans_of_record_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tuple(replace(task_of(end=10), partition=number) for number in range(PARTITIONS))
    plan = TaskPlan(0, "A->B", {0: "m.A->B.0"}, {0: Producer(1, 1)}, tasks, "A", "B", LOGIN, LOGIN)
    spark: Any = SimpleNamespace()
    found = shipped_by(lambda: stage.run_tasks(spark, [plan]), stage, monkeypatch)
    assert len(found) > SMALL_BYTES and CANARY.encode() not in found
    assert CANARY.encode() in pickle.dumps(plan)


def test_plan_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes: Dict[LaneKey, LaneTask] = {}
    for number in range(PARTITIONS):
        remote, source = ("A.orders", number), ("orders", number)
        lanes[(remote, source)] = LaneTask(remote, source, f"m.A->B.A.orders.{number}", 0, 1 << 20)
    plan = RowsPlan("A->B", None, {}, {}, lanes, "A", "B", LOGIN, LOGIN)
    session = SimpleNamespace(conf=SimpleNamespace(set=lambda key, value: None))
    rows: Any = SimpleNamespace(sparkSession=session)
    found = shipped_by(lambda: rows_stage.append_rows(rows, plan), rows_stage, monkeypatch)
    assert len(found) > SMALL_BYTES and CANARY.encode() not in found
    assert CANARY.encode() in pickle.dumps(plan)
