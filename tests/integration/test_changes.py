"""What `where`, `select` and the rest make of records: in Spark itself, over rows as Kafka's source gives them."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.config.record_change import KEY, RecordChange
from mirror_lib.errors import ConfigError
from mirror_lib.rows.transform import (
    CHANGED_DDL,
    ERROR_HEADER,
    KAFKA_ROWS_DDL,
    RemoteNames,
    changed,
    check_change,
    no_rows,
    placement_fault,
)
from tests.integration.conftest import Names
from tests.lab.brokers import KafkaBroker
from tests.lab.java_class import produce_by_java
from tests.lab.murmur2 import partition_of_key
from tests.lab.readers import read_topic

# A guard must hold in what Spark compiles, as it does for users.
pytestmark = pytest.mark.usefixtures("compiled_statements", "casts_that_fail")
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
NOON_MS = int(NOON.timestamp() * 1000)
HEADERS: List[Tuple[str, Optional[bytes]]] = [("n", b"1"), ("n", None)]
NAMES = RemoteNames({"orders": "A.orders", "audit": "A.audit"}, {"A.orders": 4, "A.audit": 3, "dead": 2})
Record = Dict[str, Any]


@pytest.fixture(scope="module")
def casts_that_fail(spark: SparkSession) -> Iterator[None]:
    """Spark 4's default on both lines: before, a cast that cannot be made gave null."""
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "true")
    yield
    spark.conf.set("spark.sql.ansi.enabled", before or "false")


def record(offset: int, value: Optional[bytes], key: Optional[bytes] = None, **other: Any) -> Record:
    row: Record = dict(key=key, value=value, topic="orders", partition=3, offset=offset, timestamp=NOON)
    return {**row, "timestampType": 0, "headers": None, **other}


def rows_of(spark: SparkSession, records: Sequence[Record]) -> DataFrame:
    return spark.createDataFrame([tuple(each.values()) for each in records], KAFKA_ROWS_DDL).coalesce(1)


def outcome(spark: SparkSession, change: RecordChange, *records: Record) -> List[Record]:
    frame = changed(rows_of(spark, records), change, NAMES)
    assert frame.schema.simpleString() == spark.createDataFrame([], CHANGED_DDL).schema.simpleString()
    found = [row.asDict() for row in frame.collect()]
    for row in found:
        row["headers"] = [(header["key"], _bytes(header["value"])) for header in row["headers"]]
        row.update(key=_bytes(row["key"]), value=_bytes(row["value"]))
    return found


def _bytes(value: Optional[bytearray]) -> Optional[bytes]:
    return None if value is None else bytes(value)


def values(found: Sequence[Record]) -> List[Tuple[int, Optional[bytes]]]:
    return [(row["source_offset"], row["value"]) for row in found]


def refusal(spark: SparkSession, change: RecordChange) -> str:
    with pytest.raises(ConfigError) as caught:
        changed(no_rows(spark), change, NAMES)
    return str(caught.value)


def test_without_a_change_every_record_stays_what_it_is(spark: SparkSession) -> None:
    full, empty = record(7, b"v", b"k", headers=HEADERS), record(9, None)
    assert outcome(spark, RecordChange(), full, empty) == [
        dict(source_topic="orders", source_partition=3, source_offset=7, remote_topic="A.orders", remote_partition=3,
             timestamp=NOON_MS, key=b"k", value=b"v", headers=HEADERS, failure=None),
        dict(source_topic="orders", source_partition=3, source_offset=9, remote_topic="A.orders", remote_partition=3,
             timestamp=NOON_MS, key=None, value=None, headers=[], failure=None),
    ]
    assert outcome(spark, RecordChange(select="*"), full, empty) == outcome(spark, RecordChange(), full, empty)


def test_where_keeps_what_is_true_and_select_changes_only_what_it_names(spark: SparkSession) -> None:
    change = RecordChange(
        where="get_json_object(cast(value as string), '$.keep') = 'yes'",
        select="*, sha2(key, 256) as key, timestamp + interval 1 second as timestamp",
    )
    kept, dropped, null = (json.dumps({"keep": word}).encode() for word in ("yes", "no", None))
    (row,) = outcome(spark, change, record(1, dropped), record(2, kept, b"k", headers=HEADERS), record(3, null))
    assert (row["source_offset"], row["value"], row["headers"]) == (2, kept, HEADERS)
    assert row["key"] == b"8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a"
    assert row["timestamp"] == NOON_MS + 1000
    # A condition on headers takes records without any.
    change = RecordChange(where="not exists(headers, h -> h.key = 'n')")
    found = outcome(spark, change, record(1, b"with", headers=HEADERS), record(2, b"without"))
    assert values(found) == [(2, b"without")]


def test_a_record_that_fails_is_told_alone_and_the_others_go_on(spark: SparkSession) -> None:
    # The cast stands twice: Spark would work it out once, ahead of everything, and fail the whole pass.
    change = RecordChange(
        select="*, cast(cast(cast(value as string) as int) + 1 as string) as value,"
        " cast(cast(cast(value as string) as int) + 2 as string) as key"
    )
    records = [record(1, b"10"), record(2, b"x", b"k", headers=HEADERS), record(3, b"30")]
    first, bad, last = outcome(spark, change, *records)
    assert (first["value"], last["key"]) == (b"11", b"32")
    assert bad["failure"].startswith("select: key cannot be computed: ")
    assert "; value cannot be computed: " in bad["failure"]
    assert (bad["remote_topic"], bad["remote_partition"], bad["key"], bad["value"]) == (None, None, b"k", b"x")


def test_a_dead_letter_is_the_record_as_it_came_with_the_reason(spark: SparkSession) -> None:
    change = RecordChange(where="cast(cast(value as string) as int) > 5", dead_letter_topic="dead")
    found = outcome(spark, change, record(1, b"9"), record(2, b"x", b"k", headers=HEADERS), record(3, b"1"))
    assert values(found) == [(1, b"9"), (2, b"x")]
    dead = found[1]
    assert (dead["remote_topic"], dead["remote_partition"], dead["key"]) == ("dead", 1, b"k")
    assert dead["headers"] == [*HEADERS, (ERROR_HEADER, dead["failure"].encode())]
    assert dead["failure"] == "where cannot be computed: cast(cast(value as string) as int) > 5"


@pytest.mark.parametrize("partitioner, count", [(KEY, 4), (16, 16)])
def test_keys_go_where_kafkas_partitioner_puts_them(spark: SparkSession, partitioner: Any, count: int) -> None:
    numbered = (b"key-%d" % n for n in range(40))
    keys: List[Optional[bytes]] = [None, b"\xff\x80", *(b"x" * n for n in range(9)), *numbered]
    records = [record(n, b"v", key) for n, key in enumerate(keys)]
    found = outcome(spark, RecordChange(partitioner=partitioner), *records)
    assert [row["remote_partition"] for row in found] == [partition_of_key(key, 3, count) for key in keys]
    change = RecordChange(select="*, 'key-1' as key", partitioner=partitioner)
    (row,) = outcome(spark, change, record(1, b"v", b"key-2"))
    assert row["remote_partition"] == partition_of_key(b"key-1", 3, count)


def test_a_java_producers_keys_are_where_they_would_be_put(source_cluster: KafkaBroker, topic_name: Names) -> None:
    topic = source_cluster.create_topic(topic_name("keyed"), 7)
    keys = [f"{'k' * (n % 9)}{n}" for n in range(200)]
    produce_by_java(source_cluster, topic, keys)
    there = {record.key: number for number, log in read_topic(source_cluster, topic).items() for record in log.values()}
    assert there == {key.encode(): partition_of_key(key.encode(), 0, 7) for key in keys}
    assert len(set(there.values())) == 7


@pytest.mark.parametrize(
    "select, failure",
    [
        ("*, cast(null as timestamp) as timestamp", "timestamp is null"),
        ("*, array(struct(cast(null as string) as key, value)) as headers", "a header has no key"),
    ],
)
def test_what_no_record_may_be_is_a_failure(spark: SparkSession, select: str, failure: str) -> None:
    (row,) = outcome(spark, RecordChange(select=select, dead_letter_topic="dead"), record(1, b"v"))
    assert (row["failure"], row["remote_topic"], row["timestamp"]) == (failure, "dead", NOON_MS)


RULES = '''
from pyspark.sql import functions as F


def mask(rows):
    found = rows.withColumn("number", F.expr("try_cast(cast(value as string) as int)"))
    return found.withColumn("failure", F.when(F.col("number").isNull(), F.lit("no number"))).where("offset <> 2")

def upper(rows):
    return rows.withColumn("value", F.udf(lambda value: bytes(value).upper(), "binary")("value"))

def random(rows):
    other = F.udf(lambda value: value, "binary").asNondeterministic()
    return rows.withColumn("value", other("value"))
'''
# A function by its name: what it returns, and why it is refused.
REFUSED = {
    "loses": ('rows.drop("offset")', "loses offset, which says where a record came from"),
    "moves": ('rows.withColumn("offset", F.col("offset") + 1)', "changes offset, which says where a record came from"),
    "groups": (
        'rows.groupBy("topic", "partition", "offset").agg(F.first("key").alias("key"))',
        "groups records, which loses them and their order",
    ),
    "sorts": ('rows.orderBy("offset")', "sorts, which is another order than the source's"),
    "shuffles": ("rows.repartition(3)", "repartitions, which loses the order of records"),
    "stops": ("rows.limit(3)", "stops after so many rows, which loses records"),
    "joins": (
        'rows.join(rows.sparkSession.range(3), F.col("id") == F.col("offset"))',
        "joins, which loses the order of records and may multiply them",
    ),
    "adds": ("rows.union(rows)", "adds rows of another source"),
    "spreads": (
        'rows.withColumn("remote_topic", F.lit("eu"))',
        "gives remote_topic, and a topic has one remote topic; copy its parts by several flows",
    ),
    "types": ('rows.withColumn("value", F.struct("key"))', "transform gives value as struct<key:binary>; make it text"),
    "fails": ("rows.nowhere", "house_of_changes:fails failed: "),
    "nothing": ("None", "returned NoneType; it must return a DataFrame"),
}


@pytest.fixture
def rules(tmp_path: Path) -> Dict[str, str]:
    """`places` of a file next to which the module `house_of_changes` lies."""
    refused = "".join(f"\ndef {name}(rows):\n    return {body}\n" for name, (body, _) in REFUSED.items())
    (tmp_path / "house_of_changes.py").write_text(RULES + refused, encoding="utf-8")
    return {"transform": f"{tmp_path / 'mirror.yaml'}:7"}


def test_a_function_of_the_users_comes_first_and_may_fail_records(spark: SparkSession, rules: Dict[str, str]) -> None:
    change = RecordChange(
        transform="house_of_changes:mask", where="number <> 4", select="*, cast(number * 2 as string) as value",
        dead_letter_topic="dead", places=rules,
    )  # fmt: skip
    records = [record(n, value) for n, value in enumerate((b"0", b"1", b"2", b"x", b"4"))]
    found = outcome(spark, change, *records)
    assert values(found) == [(0, b"0"), (1, b"2"), (3, b"x")]
    assert [row["failure"] for row in found] == [None, None, "no number"]


@pytest.mark.parametrize("function", [*REFUSED, "absent"])
def test_a_function_that_could_lose_or_reorder_records_is_refused(
    spark: SparkSession, rules: Dict[str, str], function: str
) -> None:
    _, sentence = REFUSED.get(function, ("", "the module house_of_changes has no function absent"))
    reported = refusal(spark, RecordChange(transform=f"house_of_changes:{function}", places=rules))
    assert sentence in reported and reported.endswith("mirror.yaml:7)")


@pytest.mark.parametrize(
    "change, sentence",
    [
        (RecordChange(select="value"), "select loses key and headers and timestamp; begin it with * to keep"),
        (RecordChange(select="*, vlaue as key"), "asks for the column vlaue, which there is not; did you mean value?"),
        (RecordChange(where="vlaue is null"), "where asks for the column vlaue, which there is not; did you mean"),
        (
            RecordChange(where="amount >= 500"),
            "which there is not; there are key, value, topic, partition, offset, timestamp, timestampType, headers; "
            "a field of a JSON value is get_json_object(cast(value as string), '$.amount')",
        ),
        (RecordChange(select="*, 1 + 1"), "gives (1 + 1), which needs a name: write (1 + 1) as value"),
        (RecordChange(select="*, 'x' as valeu"), "gives valeu, which no record has; did you mean value?"),
        (RecordChange(select="*, 'x' as topic"), "gives a new topic, which says where a record came from"),
        (RecordChange(select="*, 'x' as remote_topic"), "gives remote_topic, and a topic has one remote topic"),
        (RecordChange(select="*, 1 as value"), "select gives value as int; make it text or bytes"),
        (RecordChange(select="*, 'x' as timestamp"), "select gives timestamp as string; it is a timestamp"),
        (RecordChange(select="* from other"), "select must be a select list alone"),
        (RecordChange(select="*, a b c"), "select is no Spark SQL: Syntax error at or near 'c'"),
        (RecordChange(where="value >"), "where is no Spark SQL: Syntax error at"),
        (RecordChange(where="nosuch(value)"), "where is no Spark SQL: "),
        (RecordChange(where="key in (select 1)"), "where "),
        (RecordChange(select="*, max(value) as value"), "select "),
        (RecordChange(select="*, explode(array(value)) as value"), "select makes several records of one"),
        (RecordChange(select="*, lag(value) over (order by offset) as value"), "select uses other rows"),
        (RecordChange(select="*, (select 'x') as value"), "select asks another table"),
    ],
)
def test_what_cannot_be_meant_is_refused(spark: SparkSession, change: RecordChange, sentence: str) -> None:
    assert sentence in refusal(spark, change)


@pytest.mark.parametrize(
    "change, reason, decides_the_place",
    [
        (RecordChange(), "", False),
        (RecordChange(where="key is not null", select="*, sha2(value, 256) as value", partitioner=KEY), "", False),
        (RecordChange(where="pmod(xxhash64(key), 10) = 0", dead_letter_topic="dead"), "", False),
        (RecordChange(where="rand() < 0.1"), "rand() gives another value each time it is asked", False),
        (RecordChange(where="rand(42) < 0.1"), "use a hash of the key, as in pmod(xxhash64(key), 10) = 0", False),
        (RecordChange(select="*, uuid() as key"), "uuid() gives another value each time it is asked", False),
        (RecordChange(select="*, current_timestamp() as timestamp"), "current_timestamp() is another time", False),
        (RecordChange(where="timestamp > now() - interval 1 day"), "now() is another time each time", False),
        (RecordChange(where="to_date(timestamp) = current_date()"), "current_date() is another day tomorrow", False),
        (RecordChange(where="unix_timestamp() > 0"), "current_timestamp() is another time", False),
        (RecordChange(transform="house_of_changes:upper", partitioner=KEY), "", False),
        (RecordChange(transform="house_of_changes:upper", where="rand() < 1"), "rand() gives", False),
        (RecordChange(transform="house_of_changes:random"), "is declared non-deterministic", False),
        (RecordChange(select="*, cast(rand() as string) as value", partitioner=KEY), "rand() gives", False),
        (RecordChange(select="*, sha2(value, 256) as key", partitioner=KEY), "", False),
        (RecordChange(select="*, uuid() as key", partitioner=KEY), "uuid() gives another value", True),
        (RecordChange(select="*, concat('k', rand()) as key", partitioner=3), "rand() gives another value", True),
        (RecordChange(transform="house_of_changes:random", partitioner=KEY), "is declared non-deterministic", True),
    ],
)
def test_what_cannot_be_repeated_is_known_with_its_reason_and_refused_where_it_decides_the_place(
    spark: SparkSession, rules: Dict[str, str], change: RecordChange, reason: str, decides_the_place: bool
) -> None:
    why = check_change(spark, flow_of(change, rules))
    assert (why is not None) is bool(reason) and reason in (why or "")
    fault = placement_fault(spark, flow_of(change, rules))
    assert (fault is not None) is decides_the_place
    assert fault is None or reason in str(fault)


def flow_of(change: RecordChange, rules: Dict[str, str]) -> ReplicationFlow:
    given = RecordChange(**{**vars(change), "places": rules})
    source, target = (ClusterConfig(alias, {"bootstrap.servers": "none:1"}) for alias in "AB")
    return ReplicationFlow(source, target, change=given)


def test_all_steps_are_one_stage_without_a_shuffle_by_the_same_plan_in_each_micro_batch(spark: SparkSession) -> None:
    change = RecordChange(where="value is not null", select="*, upper(cast(value as string)) as value", partitioner=KEY)
    plan = changed(rows_of(spark, [record(1, b"v")]), change, NAMES)._jdf.queryExecution().executedPlan().toString()
    assert "Exchange" not in plan and "from_json" not in plan
    rows = no_rows(spark)
    first, later = (changed(rows, change, NAMES, again) for again in (False, True))
    assert first.sameSemantics(later)
    assert not first.sameSemantics(changed(rows, RecordChange(where="value is not null"), NAMES))
