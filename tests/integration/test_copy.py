"""The copy on real brokers: every kind of record arrives as it was, once, in order; what is refused is reported."""

from __future__ import annotations

import re
from typing import Iterator, List, Tuple

import pytest
from confluent_kafka import Producer

from tests.integration.conftest import Command, Ground, Names
from tests.lab import dataset
from tests.lab.brokers import KafkaBroker
from tests.lab.flow_lab import NOON, FlowLab, values
from tests.lab.readers import differences, read_topic, without_origins

Hard = Tuple[FlowLab, Producer]


@pytest.fixture
def lab(ground: Ground, topic_name: Names) -> FlowLab:
    return FlowLab(*ground, topic_name("copy"))


HARD = {
    **{f"json.{codec}": 1000 for codec in dataset.CODECS},
    "odd.records": 360,
    "append.time": 500,
    "transactions": 200,
    "compacted": None,
    "tiny.batches": 1000,
    "large.batches": 1000,
    "trimmed": 1223,
}


def fill(source: KafkaBroker, target: KafkaBroker) -> Producer:
    later = dataset.to_be_compacted(source, keys=100)
    for codec in dataset.CODECS:
        dataset.compressed(source, codec, 1000)
    dataset.odd_records(source, 60)
    dataset.append_time(source, 500)
    dataset.tiny_batches(source, 1000)
    dataset.trimmed(source)
    dataset.large_batches(source, target, "source.large.batches", 1000)
    _, transaction = dataset.transactions(source, rounds=6, each=50)
    dataset.compacted(source, later)
    return transaction


@pytest.fixture(scope="module")
def hard_cases(shared_ground: Ground) -> Iterator[Hard]:
    """The data set, copied in one run while a transaction is open."""
    transaction = fill(*shared_ground[:2])
    made = FlowLab(*shared_ground, "hard-cases", {"topics": list(HARD)})
    made.copy()
    yield made, transaction


@pytest.fixture(scope="module")
def through_rows(hard_cases: Hard, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same data set copied through Spark's rows; what its remote topics are called before the topic's name."""
    made, _ = hard_cases
    settings = {**made.settings, "engine": "records", "replication.policy.separator": "-rows-"}
    FlowLab(made.source, made.target, made.spark, tmp_path_factory.mktemp("rows"), "rows", settings).copy()
    return "source-rows-"


@pytest.mark.parametrize("topic", HARD)
def test_remote_log_is_an_exact_copy_of(topic: str, hard_cases: Hard, through_rows: str) -> None:
    made, _ = hard_cases
    source = read_topic(made.source, topic, "read_committed")
    remote = read_topic(made.target, f"source.{topic}")
    assert differences(source, remote) == []
    assert differences(source, without_origins(read_topic(made.target, through_rows + topic))) == []
    count = sum(map(len, remote.values()))
    assert count == HARD[topic] or (HARD[topic] is None and count > 100)


def test_the_hard_cases_are_in_the_data(hard_cases: Hard) -> None:
    made, _ = hard_cases
    odd = [record for log in read_topic(made.target, "source.odd.records").values() for record in log.values()]
    assert {None, b""} <= {r.key for r in odd} & {r.value for r in odd}
    assert {-86_400_000, 0, 4_102_444_800_000} <= {r.timestamp for r in odd}
    assert (("h", b""), ("h", b"2"), ("h", None), ("h", b"1")) in {r.headers for r in odd}
    compacted = list(read_topic(made.source, "compacted")[0])
    assert compacted[-1] - compacted[0] >= len(compacted)
    assert min(read_topic(made.source, "trimmed")[0]) == 777
    uncommitted = read_topic(made.source, "transactions")
    assert sum(map(len, uncommitted.values())) > HARD["transactions"]  # type: ignore[operator]


@pytest.mark.long
def test_verify_says_that_all_are_equal_and_settles_most_records_by_batches(
    hard_cases: Hard, command: Command, caplog: pytest.LogCaptureFixture
) -> None:
    """Batches of one record, and those larger than the remote topic allows, were rebuilt."""
    with caplog.at_level("INFO", "mirror_lib.verify.flow"):
        verified = command("verify", hard_cases[0].config, "--json")
    report = verified.documents[-1]
    assert verified.code == 0 and len(report["waiting"]) == 1  # with the age of the open transaction
    assert {topic["topic"]: topic["verdict"] for topic in report["topics"]} == dict.fromkeys(HARD, "equal")
    said = [re.findall(r"\d+", each.getMessage()) for each in caplog.records if "by batches" in each.msg]
    ((records, left),) = [map(int, each) for each in said]
    assert records == sum(count for count in HARD.values() if count is not None)
    assert 3000 <= left <= records - 3000


def test_open_transaction_is_copied_once_it_is_committed_and_nothing_else_with_it(hard_cases: Hard) -> None:
    made, transaction = hard_cases
    before = {name: read_topic(made.target, f"source.{name}") for name in HARD}
    assert b"still open" not in {record.value for record in before["transactions"][0].values()}
    transaction.commit_transaction(30)
    made.copy()
    after = {name: read_topic(made.target, f"source.{name}") for name in HARD}
    new = [record.value for record in after["transactions"][0].values()][len(before["transactions"][0]) :]
    assert new == [b"still open"] * 10
    del before["transactions"], after["transactions"]
    assert after == before


def refused_records(lab: FlowLab) -> None:
    """Four topics: one record too large, one too far in the future, one without a key for a log that needs them,
    and one without any trouble."""
    lab.settings["sync.topic.configs.enabled"] = "false"  # it would raise the limit
    for stem in ("large", "keyless", "fine"):
        lab.create(stem)
    lab.create("future", message_timestamp_after_max_ms=dataset.FOREVER)
    lab.target.create_topic(lab.remote("large"), max_message_bytes="2000")
    lab.target.create_topic(lab.remote("future"), message_timestamp_after_max_ms="3600000")
    lab.target.create_topic(lab.remote("keyless"), cleanup_policy="compact")
    lab.write("large", [*values(30), b"x" * 5000, *values(30, "later")])
    lab.write("fine", values(60))
    ahead = 4_102_444_800_000
    rows: List[dataset.Row] = [(NOON, b"k", b"value %d" % n, []) for n in range(61)]
    dataset.write_batch(lab.source, f"{lab.name}.future", 0, [*rows[:30], (ahead, b"k", b"ahead", []), *rows[31:]])
    dataset.write_batch(lab.source, f"{lab.name}.keyless", 0, [*rows[:30], (NOON, None, b"no key", []), *rows[31:]])


REFUSED = ("large", "future", "keyless")


def test_refused_record_stops_its_partition_and_is_left_out_alone_where_asked(lab: FlowLab) -> None:
    refused_records(lab)
    lab.create("empty")
    outcome = lab.run()
    assert outcome.error is not None and outcome.error.exit_code == 1
    assert "3 partitions stopped" in str(outcome.error)
    assert lab.differences("fine") == []
    assert sorted(row[:2] for row in lab.incidents()) == [("partition stopped", stem) for stem in sorted(REFUSED)]
    for stem in REFUSED:
        source = list(lab.read(stem)[0].values())
        copied = list(lab.read_remote(stem)[0].values())
        assert copied == source[: len(copied)] and len(copied) <= 30

    lab.copy(on_error="skip")
    for stem in REFUSED:
        source = list(lab.read(stem)[0].values())
        assert list(lab.read_remote(stem)[0].values()) == [*source[:30], *source[31:]]
    skipped = [row for row in lab.incidents() if row[0] == "offsets skipped"]
    assert sorted(skipped) == [("offsets skipped", stem, 0, 30, 31) for stem in sorted(REFUSED)]

    # A run with nothing to do leaves the remote logs alone.
    ends = lab.remote_ends()
    assert ends[lab.remote("empty"), 0] == 0
    assert lab.copy().records == 0 and lab.remote_ends() == ends
    assert len(lab.incidents()) == 6


@pytest.mark.long
def test_read_uncommitted_copies_aborted_and_open_transactions_too(lab: FlowLab) -> None:
    topic = lab.create("mixed")
    producer = lab.source.producer(transactional_id=lab.name)
    producer.init_transactions(30)
    for end in ("commit", "abort", "open"):
        producer.begin_transaction()
        for number in range(20):
            producer.produce(topic, b"%s %d" % (end.encode(), number), b"k", 0)
        assert producer.flush(30) == 0
        if end == "commit":
            producer.commit_transaction(30)
        elif end == "abort":
            producer.abort_transaction(30)
    lab.copy(consumer_isolation_level="read_uncommitted")
    assert lab.differences("mixed", "read_uncommitted") == []
    assert len(lab.remote_values("mixed")) == 60
    producer.abort_transaction(30)
    lab.copy()
    assert len(lab.remote_values("mixed")) == 60


def test_latest_copies_what_comes_after_the_first_run(lab: FlowLab, command: Command) -> None:
    lab.create("orders", 2)
    lab.write("orders", values(50, "before"))
    lab.settings["consumer.auto.offset.reset"] = "latest"
    assert lab.copy().records == 0
    verified = command("verify", lab.config)
    assert verified.code == 0 and "50 source offsets before the copy's start" in verified.out
    lab.write("orders", values(50, "after"))
    lab.write("orders", values(20, "after"), 1)
    lab.copy()
    assert lab.remote_values("orders") == values(50, "after")
    assert lab.remote_values("orders", 1) == values(20, "after")
