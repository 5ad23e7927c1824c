"""What a run says to do about partitions that stopped."""

from __future__ import annotations

from mirror_lib.copy_job import way_out
from mirror_lib.replication.messages import Stop

REFUSED = Stop("sales-0 at offset 10: too large")


def test_partition_that_stopped_at_a_record_that_cannot_be_changed_names_the_ways_out() -> None:
    failed = Stop("sales-0 at offset 10: where cannot be computed: x > 1", fails=True)
    reported = way_out([REFUSED, failed])
    assert reported is not None and "dead.letter.topic" in reported and "on.error: skip" in reported


def test_partition_whose_record_the_target_refused_is_not_sent_to_dead_letters() -> None:
    assert way_out([REFUSED]) is None
