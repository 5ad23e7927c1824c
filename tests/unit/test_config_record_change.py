"""What a flow changes in its records, as files say it: read in every form, refused with its line where it is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional

import pytest

from mirror_lib.config.model import KEEP, REFUSE
from mirror_lib.config.record_change import KEY, RecordChange
from tests.unit.configs import FLOW, IN_YAML, MM2, YAML, read, refusal

FILTER = RecordChange(where="true")
BARE = RecordChange(where="true", provenance=False)
RENAMED = RecordChange(rename=(("orders", "b"), ("c-(.*)", "e.$1")))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        # Whole batches, unless records are changed.
        ("    partitioner: source\n    provenance: on\n    where: ''\n", None),
        ("    engine: records\n", RecordChange()),
        ("    select: '*, sha2(key, 256) as key'\n", RecordChange(select="*, sha2(key, 256) as key")),
        ("    transform: house.rules:mask\n", RecordChange(transform="house.rules:mask")),
        ("    rename: {orders: b, c-(.*): e.$1}\n", RENAMED),
        ("    rename: [orders -> b, c-(.*) -> e.$1]\n", RENAMED),
        ("    partitioner: key\n", RecordChange(partitioner=KEY)),
        ("    dead.letter.topic: dead\n", RecordChange(dead_letter_topic="dead")),
        ("    provenance: off\n", RecordChange(provenance=False)),
        ("    where: 'true'\n", FILTER),
        *((f"    where: 'true'\n    provenance: {written}\n", BARE) for written in ("off", "false", "OFF", "'off'")),
        # For all flows, and otherwise for one.
        ("partitioner: key\n", RecordChange(partitioner=KEY)),
        ("    partitioner: source\npartitioner: key\n", None),
    ],
)
def test_keys_that_change_records_take_the_other_engine(
    tmp_path: Path, lines: str, expected: Optional[RecordChange]
) -> None:
    (flow,) = read(tmp_path, IN_YAML + lines, YAML).flows
    assert (flow.change, flow.counts_differ, flow.heartbeats_replication) == (expected, KEEP, expected is None)


@pytest.mark.parametrize(
    ("key", "reason", "of_mirrormaker"),
    [
        # Keys of an earlier release, and what took their place.
        ("provenance.headers", "`provenance: off` leaves it out", False),
        ("max.bytes.per.second.topics", "`max.bytes.per.second` limits a flow", False),
        ("transform.deterministic", "what places a record may not be declared non-deterministic", False),
        ("offset.lag.max", "the table `offset_syncs`", True),
        ("offset.storage.topic", "there is no Connect worker", True),
    ],
)
def test_key_without_meaning_is_refused_and_one_that_has_it_for_mirrormaker_alone_is_a_warning_in_its_files(
    tmp_path: Path, key: str, reason: str, of_mirrormaker: bool
) -> None:
    texts = {YAML: f"{IN_YAML}    {key}: 1\n", MM2: f"{FLOW}A->B.{key} = 1\n"}
    if of_mirrormaker:
        (sentence,) = read(tmp_path, texts.pop(MM2)).warnings
        assert sentence.startswith(f"A->B.{key}: ignored: {reason}")
    for name, text in texts.items():
        said = refusal(tmp_path, text, name)
        assert said.startswith(f"A->B.{key} cannot be honoured: ") and reason in said
        assert said.endswith(f"; take it out ({name}:{6 if name == YAML else 5})")


def test_properties_say_the_same_and_keep_sql_as_it_stands(tmp_path: Path) -> None:
    text = FLOW + (
        "A->B.where = 'x' <> value and topic like '%#%' # not a comment\n"
        "A->B.rename = orders-(.*) -> sales-$1, audit -> audit.eu\n"
        "A->B.partitioner = 12\nA->B.transform = rules:mask\nA->B.provenance = off\n"
    )
    assert read(tmp_path, text).flows[0].change == RecordChange(
        where="'x' <> value and topic like '%#%' # not a comment",
        rename=(("orders-(.*)", "sales-$1"), ("audit", "audit.eu")),
        partitioner=12,
        transform="rules:mask",
        provenance=False,
    )


@pytest.mark.parametrize(
    ("rules", "refused"),
    [
        (["a -> b"], ""),
        (["orders-(.*) -> sales-$1", "(.*) -> eu.$1"], ""),
        (["(.*)-(eu|us) -> $1-$2"], ""),
        (["v1[.](.*)[.](.*) -> eu.$1.$2.copy"], ""),
        # `a-bc` and `ab-c` would be one; `a-b.c` and `c.a-b` would be.
        (["(.*)-(.*) -> $1$2"], "item 1 brings (.*)-(.*) together with other topics in $1$2"),
        (["(.*)-(eu|us) -> $1"], "item 1 brings (.*)-(eu|us) together with other topics in $1"),
        (["((a|b)c) -> $1"], "item 1 brings ((a|b)c) together with other topics in $1"),
        (["a -> x", "b -> x"], "item 2 brings b together with other topics in x"),
        (["a-(.*) -> $1", "b-(.*) -> $1"], "item 2 brings b-(.*) together with other topics in $1"),
        (["c -> d", "a|b -> x"], "item 2 brings a|b together with other topics in x"),
        ([".* -> all"], "item 1 brings .* together with other topics in all"),
        (["c -> d", "a -> b c"], "item 2 gives a several, b, c; copy it by a flow for each"),
    ],
)
def test_rename_that_may_bring_topics_together_or_spread_one_is_refused_without_topics(
    tmp_path: Path, rules: List[str], refused: str
) -> None:
    listed = "".join(f"      - '{rule}'\n" for rule in rules)
    escaped = ", ".join(rules).replace("\\", "\\\\")
    for name, text in ((YAML, f"{IN_YAML}    rename:\n{listed}"), (MM2, f"{FLOW}A->B.rename = {escaped}\n")):
        if refused:
            said = refusal(tmp_path, text, name)
            way_out = "with a rename of its own" if "several" in refused else "with shared.remote.topics: true"
            assert refused in said and way_out in said
        else:
            assert read(tmp_path, text, name).flows[0].change is not None


def test_the_first_pattern_that_matches_the_whole_name_gives_the_remote_topic() -> None:
    rules = RecordChange(
        rename=(("orders-(.*)", "sales-$1"), ("audit", "audit.eu"), (r"(\w+)-(\w+)", r"\2.\1"), ("audi(.)", "x$1"))
    )
    wanted = {"orders-": "sales-", "my-orders-eu": None, "audit": "audit.eu", "eu-billing": "billing.eu"}
    assert {topic: rules.renamed(topic) for topic in wanted} == wanted


def test_heartbeats_are_excluded_from_changed_flows_and_named_mirrors_unless_asked_for(tmp_path: Path) -> None:
    changed = "    where: 'true'\n"
    for lines, copied in (("", True), (changed, False), ("name: mirror\n", True), ("name: sales\n", False)):
        assert read(tmp_path, IN_YAML + lines, YAML).flows[0].heartbeats_replication is copied
        asked = IN_YAML + "    heartbeats.replication.enabled: true\n" + lines
        assert read(tmp_path, asked, YAML).flows[0].heartbeats_replication
    assert read(tmp_path, IN_YAML + "    partition.counts.differ: refuse\n", YAML).flows[0].counts_differ == REFUSE
