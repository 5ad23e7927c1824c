"""A store that is away: how long a flow survives it, and when it is reported at once."""

from __future__ import annotations

from mirror_lib.copy_job import PATIENCE_SECONDS, StorageTrust

PROVEN = StorageTrust(proven=True)


def failed(trust: StorageTrust, began: float, ended: float, wrote: bool = False) -> StorageTrust:
    return trust.after(began, ended, wrote, failed=True)


def test_folder_that_was_never_used_is_told_at_once_and_one_that_was_is_waited_for() -> None:
    assert not failed(StorageTrust(), 0, 1).lasts(1)
    assert failed(StorageTrust(), 0, 1, wrote=True).lasts(1)
    assert failed(PROVEN, 0, 1).lasts(1)


def test_lives_that_fail_one_after_the_other_end_when_patience_is_over() -> None:
    trust = failed(PROVEN, 0, 1)
    assert failed(trust, 6, PATIENCE_SECONDS).lasts(PATIENCE_SECONDS)
    assert not failed(trust, 6, PATIENCE_SECONDS + 2).lasts(PATIENCE_SECONDS + 2)


def test_patience_begins_anew_behind_a_life_that_wrote_or_was_long_or_did_not_fail() -> None:
    trust, later = failed(PROVEN, 0, 1), PATIENCE_SECONDS * 3
    assert failed(trust, later - 5, later, wrote=True).lasts(later)
    assert failed(trust, 6, later).lasts(later)
    assert failed(trust.after(6, 9, False, failed=False), later - 5, later).lasts(later)
    assert not failed(trust, later - 5, later).lasts(later)
