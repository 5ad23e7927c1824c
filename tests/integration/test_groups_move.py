"""Groups that resume on the other cluster with ordinary consumers: nothing is passed unread, nothing read twice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Tuple

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from mirror_lib.groups.moves import MOVED_MEANWHILE
from mirror_lib.ledger.event_tables import EventTable
from tests.integration.conftest import Names
from tests.lab import dataset
from tests.lab.brokers import KafkaBroker
from tests.lab.flow_lab import values
from tests.lab.group_lab import (
    CLASSIC,
    KIP_848,
    GroupLab,
    Read,
    commit,
    committed,
    member,
    of_topic,
    read_on,
    union_faults,
)
from tests.lab.readers import read_topic

HARD = ("json.zstd", "transactions", "compacted", "trimmed")


@pytest.fixture
def lab(pair: List[KafkaBroker], spark: SparkSession, tmp_path: Path, topic_name: Names) -> GroupLab:
    name = topic_name("move")
    made = GroupLab(pair[0], pair[1], spark, tmp_path, name)
    # Groups of other tests are none of this one's business.
    made.settings["groups"] = [f"{name}.*"]
    made.create("orders")
    made.write("orders", values(100))
    return made


# --- the data set ------------------------------------------------------------------------------------------------


@dataclass
class Moved:
    """The data set after its groups were moved: what each read on the source, and its verdicts."""

    lab: GroupLab
    read: Dict[str, Read]
    verdicts: Dict[Tuple[str, str, int], str]


def group_of(cut: str, topic: str) -> str:
    return f"{cut} of {topic}"


def fill(source: KafkaBroker) -> Producer:
    later = dataset.to_be_compacted(source, keys=100)
    dataset.compressed(source, "zstd", 1000)
    dataset.trimmed(source)
    _, transaction = dataset.transactions(source, rounds=6, each=50)
    dataset.compacted(source, later)
    return transaction


def read_at_source(made: GroupLab, cut: str, part: float, moved: Dict[str, Read]) -> None:
    """For each topic a group that reads that part of it; groups of both protocols in turn."""
    for number, topic in enumerate(HARD):
        count = int(sum(map(len, read_topic(made.source, topic, "read_committed").values())) * part)
        protocol = (CLASSIC, KIP_848)[number % 2]
        moved[group_of(cut, topic)] = read_on(
            made.source, group_of(cut, topic), [topic], count, group_protocol=protocol
        )


@pytest.fixture(scope="module")
def hard_cases(pair: List[KafkaBroker], spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Moved:
    """Copied in two runs while groups work on the source: before the first, between them, and after everything."""
    transaction = fill(pair[0])
    made = GroupLab(pair[0], pair[1], spark, tmp_path_factory.mktemp("hard"), "hard")
    made.settings.update({"topics": list(HARD), "groups": [".* of .*"]})
    read: Dict[str, Read] = {}
    read_at_source(made, "early", 0.3, read)
    made.copy()
    read_at_source(made, "end", 1.0, read)
    transaction.commit_transaction(30)
    pair[0].grow("json.zstd", 3)
    for topic, partition in (("json.zstd", 2), ("compacted", 0), ("trimmed", 0)):
        made.write_to(pair[0], topic, values(70, "later"), partition)
    made.copy()
    read_at_source(made, "late", 0.8, read)
    return Moved(made, read, made.translate())


@pytest.mark.parametrize("cut", ["early", "end", "late"])
@pytest.mark.parametrize("topic", HARD)
def test_group_goes_on_where_it_stopped_on_a_topic_of_the_data_set(topic: str, cut: str, hard_cases: Moved) -> None:
    made, group = hard_cases.lab, group_of(cut, topic)
    mine = {verdict for (name, _, _), verdict in hard_cases.verdicts.items() if name == group}
    assert mine == {"exact"}
    then = of_topic(read_on(made.target, group, [f"source.{topic}"]), f"source.{topic}")
    whole = read_topic(made.source, topic, "read_committed")
    assert union_faults(whole, of_topic(hard_cases.read[group], topic), then) == []


@pytest.mark.parametrize("topic", ["transactions", "compacted", "trimmed"])
def test_offsets_taken_over_as_they_are_would_fail_the_same_check(topic: str, hard_cases: Moved) -> None:
    made, group = hard_cases.lab, group_of("late", topic)
    as_they_are = committed(made.source, group, {topic: 2 if topic == "transactions" else 1})
    assert as_they_are
    for (_, partition), (offset, _) in as_they_are.items():
        commit(made.target, f"literal {topic}", f"source.{topic}", offset, partition)
    then = of_topic(read_on(made.target, f"literal {topic}", [f"source.{topic}"]), f"source.{topic}")
    whole = read_topic(made.source, topic, "read_committed")
    assert union_faults(whole, of_topic(hard_cases.read[group], topic), then) != []


# --- how far the mirror is ---------------------------------------------------------------------------------------


@pytest.mark.long
def test_group_whose_records_the_target_no_longer_has_starts_at_what_is_left_and_the_loss_is_told(
    lab: GroupLab,
) -> None:
    group, topic = lab.name, lab.topic("orders")
    lab.copy()
    read_on(lab.source, group, [topic], 20)
    start = min(at for at, record in lab.read_remote("orders")[0].items() if record.value == b"value 60")
    lab.target.expire(lab.remote("orders"), {0: start})
    for _ in range(2):
        assert lab.translate() == {(group, "orders", 0): "clamped"}
    assert lab.at_target(group, "orders") == {0: (start, "")}
    assert lab.incidents() == [("group lost records", "orders", 0, 20, -1)]
    # What the source has deleted too is no loss of the copy.
    lab.source.expire(topic, {0: 70})
    commit(lab.source, f"{group} late", topic, 20)
    assert lab.translate()[f"{group} late", "orders", 0] == "clamped" and len(lab.incidents()) == 1
    # Nothing of the copy is missing: neither a proof nor a pass that is done again is to take it for left out.
    assert EventTable(lab.spark, str(lab.directory / "state")).left_out("source->target") == {}
    assert [record.value for record in lab.rest_of(group, "orders")[0]] == values(100)[60:]


# --- groups that live, groups that no one can see living, and rewinds ---------------------------------------------

Places = Dict[int, int]


@pytest.fixture(scope="module")
def mirrored(
    pair: List[KafkaBroker], spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Tuple[GroupLab, Places]:
    """`orders`, copied whole, and the downstream offset of each upstream one."""
    made = GroupLab(pair[0], pair[1], spark, tmp_path_factory.mktemp("mirrored"), "steady")
    made.create("orders")
    made.write("orders", values(100))
    made.copy()
    downstream = {record.value: offset for offset, record in made.read_remote("orders")[0].items()}
    return made, {up: downstream[record.value] for up, record in made.read("orders")[0].items()}


Mirrored = Tuple[GroupLab, Places]


def test_group_that_lives_or_has_moved_since_the_decision_is_refused_and_the_others_go_on(
    mirrored: Mirrored, topic_name: Names
) -> None:
    """As when the process sleeps while another one moves the groups, and consumers work on the target."""
    lab, place = mirrored
    late, worked, same, idle = groups = [topic_name(stem) for stem in ("late", "worked", "same", "idle")]
    for group in groups:
        commit(lab.source, group, lab.topic("orders"), 40)
    with lab.translation() as life:
        decisions = [each for each in life.decide(life.survey()) if each.group in groups]
        for group in (worked, same):
            assert lab.translate(group=group) == {(group, "orders", 0): "exact"}
        read_on(lab.target, worked, [lab.remote("orders")], 25)
        with member(lab.target, late, lab.remote("orders")):
            done = {outcome.decision.group: outcome.done for outcome in life.execute(decisions)}
            assert lab.passed(life, group=late) == {(late, "orders", 0): "active on target"}
    assert done.pop(late).startswith("refused: UNKNOWN_MEMBER_ID: the group has members")
    assert done == {worked: f"refused: {MOVED_MEANWHILE}", same: "committed", idle: "committed"}
    stands = {group: lab.at_target(group, "orders")[0][0] for group in done}
    assert stands == {worked: place[65], same: place[40], idle: place[40]} and not lab.at_target(late, "orders")
    assert lab.translate(group=late) == {(late, "orders", 0): "exact"}
    commit(lab.source, same, lab.topic("orders"), 50)
    with lab.translation() as life:
        decisions = life.decide(life.survey(same))
        for offset in (60, 70):  # the row of a commit that is refused comes after that of the commit that was made
            commit(lab.source, same, lab.topic("orders"), offset)
            assert lab.translate(group=same) == {(same, "orders", 0): "exact"}
            life.execute(decisions)


@pytest.mark.long
def test_rows_of_a_remote_topic_that_was_created_anew_say_nothing_about_the_new_one(lab: GroupLab) -> None:
    group, topic = lab.name, lab.topic("orders")
    lab.copy()
    first = of_topic(read_on(lab.source, group, [topic], 80), topic)
    lab.create("unseen")
    commit(lab.source, group, lab.topic("unseen"), 0)
    key, unseen = (group, "orders", 0), (group, "unseen", 0)

    def missing(stem: str) -> str:
        return f"untranslatable: {lab.remote(stem)}-0 does not exist yet"

    with lab.translation() as life:
        (decision,) = [each for each in life.decide(life.survey()) if lab.key(each) == key]
        lab.target.delete_topic(lab.remote("orders"))
        assert lab.translate() == {key: missing("orders"), unseen: missing("unseen")}
        # Shorter than the old one: there the old offset lies behind what was not read.
        lab.expire("orders", 60)
        lab.copy()
        (outcome,) = life.execute([decision])
        assert outcome.done == "refused: the topic was deleted or re-created meanwhile"
        assert lab.at_target(group, "orders") == {}
        life.reread()
        assert lab.passed(life)[key] == "exact"
    assert first[0] + lab.rest_of(group, "orders")[0] == [*first[0][:60], *lab.read("orders")[0].values()]
