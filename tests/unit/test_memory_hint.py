"""What is said where Java's memory is full: the next step is about memory, not about folders."""

from __future__ import annotations

from mirror_lib.spark.errors import memory_hint
from mirror_lib.verify.flow import unread


def test_full_memory_is_told_with_the_option_that_gives_more() -> None:
    hint = memory_hint("java.lang.OutOfMemoryError: Java heap space")
    assert hint is not None and "--driver-memory" in hint


def test_other_failures_keep_their_own_advice() -> None:
    assert memory_hint("java.io.IOException: No space left on device") is None


def test_comparison_that_filled_the_memory_is_told_that_and_of_no_expired_records() -> None:
    reported = str(unread("A->B", RuntimeError("java.lang.OutOfMemoryError: Java heap space")))
    assert "--driver-memory" in reported and "verify again" in reported and "expired" not in reported


def test_comparison_that_failed_otherwise_is_told_of_expired_records() -> None:
    reported = str(unread("A->B", RuntimeError("offsets are out of range")))
    assert "expired" in reported and "--driver-memory" not in reported
