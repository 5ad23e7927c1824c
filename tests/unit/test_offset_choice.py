"""`start.position`: what each way of writing them comes to, and the sentence for what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror_lib.config.values import START_POSITION, OffsetChoice
from tests.unit.configs import FLOW, IN_YAML, YAML, read

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
        ("somewhere", "must be earliest, latest, a time"),
        ("group: billing", "must be earliest, latest, a time such as .*, `group NAME`"),
        ("2026-01-01T00:00:00", "without a zone"),
        ("2026-13-01T00:00:00Z", "cannot be read"),
        ("orders:0=100, orders:0=200", "names orders:0 twice"),
        ("orders=100", "not TOPIC:PARTITION=OFFSET"),
        ("orders:0=-1", "not TOPIC:PARTITION=OFFSET"),
    ],
)
def test_start_position_is_read_or_refused_with_a_sentence(text: str, choice: object) -> None:
    if isinstance(choice, str):
        with pytest.raises(ValueError, match=choice):
            START_POSITION.parse(text)
    else:
        assert START_POSITION.parse(text) == choice


@pytest.mark.parametrize("written", ["latest", "2026-01-01T00:00:00Z", "group billing", "orders:0=100, pay.ments:12=0"])
def test_both_kinds_of_file_give_the_same_start(tmp_path: Path, written: str) -> None:
    # Checkpoints and excluded topics are written out, since their defaults in a MirrorMaker file differ.
    excluded = "A->B.topics.exclude = mm2.*\\\\.internal, .*\\\\.replica, __.*\n"
    yaml = f"{IN_YAML}    start.position: {written}\n    emit.checkpoints.enabled: true\n"
    (flow,) = read(tmp_path, yaml, YAML).flows
    assert (flow,) == read(tmp_path, f"{FLOW}{excluded}A->B.start.position = {written}\n").flows
    assert not flow.starts_at_earliest
    assert (flow.auto_offset_reset == "latest", flow.start_position is None) == (written == "latest",) * 2
