"""`start.position`: what each way of writing them comes to, and the sentence for what cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import pytest

from mirror_lib.config.loader import load
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.values import START_POSITION, OffsetChoice

NEW_YEAR = 1_767_225_600_000
ORDERS = OffsetChoice(offsets=((("orders", 0), 100), (("pay.ments", 12), 0)))


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("", None),
        ("Latest", OffsetChoice(word="latest")),
        ("2026-01-01T00:00:00Z", OffsetChoice(timestamp=NEW_YEAR)),
        ("2026-01-01T01:00:00.250+01:00", OffsetChoice(timestamp=NEW_YEAR + 250)),
        ("group billing", OffsetChoice(group="billing")),
        ("group a group, with a comma", OffsetChoice(group="a group, with a comma")),
        ("orders:0=100, pay.ments:12=0", ORDERS),
        (("orders:0=100", "pay.ments:12=0"), ORDERS),
    ],
)
def test_start_position_can_be_written_in_these_ways(text: str, choice: Optional[OffsetChoice]) -> None:
    assert START_POSITION.parse(text) == choice


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("somewhere", "must be earliest, latest, a time"),
        ("group: billing", "must be earliest, latest, a time such as .*, `group NAME`"),
        ("timestamp: 2026-01-01T00:00:00Z", "must be earliest, latest, a time such as 2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00", "without a zone"),
        ("2026-13-01T00:00:00Z", "cannot be read"),
        ("orders:0=100, orders:0=200", "names orders:0 twice"),
        ("orders=100", "not TOPIC:PARTITION=OFFSET"),
        ("orders:0=-1", "not TOPIC:PARTITION=OFFSET"),
    ],
)
def test_start_position_that_cannot_be_read_is_refused_with_a_sentence(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        START_POSITION.parse(text)


def flow_of(path: Path, text: str) -> ReplicationFlow:
    path.write_text(text)
    return load(str(path), {}).flows[0]


@pytest.mark.parametrize(
    "written",
    ["latest", "2026-01-01T00:00:00Z", "group billing", "orders:0=100, pay.ments:12=0"],
)
def test_both_kinds_of_file_say_it_alike(tmp_path: Path, written: str) -> None:
    yaml = 'clusters: {A: {bootstrap.servers: "a:1"}, B: {bootstrap.servers: "b:1"}}\nflows:\n  A->B:\n'
    mm2 = "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
    mm2 += "A->B.topics.exclude = mm2.*\\\\.internal, .*\\\\.replica, __.*\n"
    # Checkpoints and excluded topics are written out, since their defaults in a MirrorMaker file differ.
    flow = flow_of(tmp_path / "m.yaml", f"{yaml}    start.position: {written}\n    emit.checkpoints.enabled: true\n")
    assert flow == flow_of(tmp_path / "m.properties", f"{mm2}A->B.start.position = {written}\n")
    assert not flow.starts_at_earliest
    assert (flow.auto_offset_reset == "latest", flow.start_position is None) == (written == "latest",) * 2
