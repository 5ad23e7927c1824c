"""Decides what to do on the other cluster about one committed offset, and why. Pure.

MirrorMaker 2 commits one past the nearest of 64 syncs, writes nothing for a group older than these, never rewinds, and
leaves it to the broker to refuse a live group. Here the answer is exact at any lag, and every refusal has a word.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional, Union

from mirror_lib.facts import CommittedOffset, ConsumerGroup, OffsetRange
from mirror_lib.ledger.intervals import BEFORE, BEYOND, PartitionMap, Place

EXACT = "exact"
CLAMPED = "clamped"
BEFORE_FIRST = "before first copied record"
ACTIVE = "active on target"
BACKWARDS = "would move backwards"
MOVED_BACK = "moved back: the remote log lost its tail"
# Why a group that is to be moved is not.
NO_ANSWER = "its coordinator does not answer with committed offsets now"
OLDER = "older than what the take-over compared, see mirror takeover --compare"

TO_DOWNSTREAM = "to downstream"
TO_UPSTREAM = "to upstream"


def held(ahead_by: int) -> str:
    """The verdict on a group that has read what is not mirrored yet, `ahead_by` offsets of it."""
    return f"held: ahead of the mirror by {ahead_by}"


def untranslatable(reason: str) -> str:
    """The verdict where there is nothing to translate by; `reason` is a phrase without a full stop."""
    return f"untranslatable: {reason}"


@dataclass(frozen=True)
class TranslationRules:
    """What the operator allows.

    `allow_rewind`: groups may be moved backwards. `simple_groups`: `exclude`, or `include` for groups without
    membership that another client committed for.
    """

    allow_rewind: bool = False
    simple_groups: str = "exclude"


@dataclass(frozen=True)
class GroupPosition:
    """All that is known about one group on one partition when it is decided on.

    `position` is the group's committed offset here, at 0 or above; `direction` says whether that is on the source
    (`TO_DOWNSTREAM`) or on the remote topic (`TO_UPSTREAM`). `map` is the partition's map or the reason why there is
    none. About the other side: the partition's `log` (`None` without a leader), the group's `present` offset there
    (`None`: none) and the `group` itself (`None`: absent).

    `ours` is the offset that the last audit row names as written there, `ours_before` what it names as replaced. A
    row precedes its commit, so after a crash, or a refusal, the group is still at `ours_before`. `only_ours`: since
    then no other client moved the group, on either side, but forward here. `others`: another flow committed its present
    offset."""

    position: CommittedOffset
    direction: str
    map: Union[PartitionMap, str]
    log: Optional[OffsetRange] = None
    present: Optional[CommittedOffset] = None
    group: Optional[ConsumerGroup] = None
    ours: Optional[int] = None
    ours_before: Optional[int] = None
    only_ours: bool = False
    others: bool = False


@dataclass(frozen=True)
class Translation:
    """What was decided. `commit`: whether `new_offset` and `metadata` are to be written on the other side.

    `new_offset` is `None` where there is none to give; otherwise it is what the verdict speaks of, written or not.
    `reread` counts, at most, the offsets that the group has read and would read again from there (`None` without a
    `new_offset`), `lost` those that it would pass unread because the other log no longer holds them.
    """

    verdict: str
    new_offset: Optional[int] = None
    metadata: str = ""
    commit: bool = False
    reread: Optional[int] = None
    lost: int = 0


def translate(at: GroupPosition, rules: TranslationRules = TranslationRules()) -> Translation:
    """Decide on one group and partition; no other partition has a say.

    Of several verdicts the first that blocks is given: `untranslatable` (nothing else can be known),
    `held` (the mirror has to catch up first), `active on target` (consumers work there), `would move backwards`, and
    then where the offset came from: `moved back`, `before first copied record`, `clamped`, `exact`. Written is only
    under these last four, and not where the group already there: the same facts after a write give no write.
    """
    if isinstance(at.map, str):
        return Translation(untranslatable(at.map))
    if at.log is None:
        return Translation(untranslatable("the other cluster's partition has no leader now"))
    to_other = at.map.to_downstream if at.direction == TO_DOWNSTREAM else at.map.to_upstream
    place = to_other(at.position.offset)
    if place.kind == BEFORE and at.map.older:
        # To resume at the first range would pass records that another tool copied and the group did not read.
        return Translation(untranslatable(OLDER))
    if place.kind == BEFORE and at.direction == TO_DOWNSTREAM:
        # A re-created ledger may lack the first records of the remote log, and the group may not have read them.
        place = replace(place, offset=min(place.offset, at.log.log_start))
    return translate_to(place, at, rules)


def translate_to(place: Place, at: GroupPosition, rules: TranslationRules = TranslationRules()) -> Translation:
    """The same where the place on the other side is known; its log must be."""
    assert at.log is not None
    if place.kind == BEYOND:
        return Translation(held(place.beyond_by))
    translated = _within(place, at.log, at.position.metadata)
    if _is_active(at, rules):
        return _unwritten(translated, at.present, ACTIVE)
    return translated if at.present is None else _over(translated, at.present.offset, place, at, rules)


def _within(place: Place, log: OffsetRange, metadata: str) -> Translation:
    """The translation inside the other log, as if the group had no offset there.

    Below the log's start its start: what lay before is lost. Above its end (its tail was lost, or is not visible yet)
    the end: the next record there was not read.
    """
    offset = min(max(place.offset, log.log_start), log.end)
    reread = max(place.earliest - offset, 0)
    return Translation(_verdict(place, offset), offset, metadata, True, reread, max(offset - place.latest, 0))


def _verdict(place: Place, offset: int) -> str:
    if place.kind == BEFORE:
        return BEFORE_FIRST
    return EXACT if place.earliest <= offset <= place.latest else CLAMPED


def _over(
    translated: Translation, present: int, place: Place, at: GroupPosition, rules: TranslationRules
) -> Translation:
    """`translated` against the offset that the group has on the other side already."""
    assert translated.new_offset is not None and at.log is not None
    if place.kind == BEFORE and translated.new_offset <= present <= place.latest:
        # It is at an offset before the first record of the ledger, and no better one is known.
        return replace(translated, new_offset=present, reread=0, commit=False)
    # An offset before the log's start is out of range for a consumer, and `auto.offset.reset` would then decide.
    if place.earliest <= present <= place.latest and present >= at.log.log_start:
        # The present offset is right, even where the log seems to end before it.
        clamped = translated.verdict == CLAMPED
        right = Translation(EXACT, present, translated.metadata, reread=0) if clamped else translated
        return replace(right, commit=False)
    if present < translated.new_offset:
        return translated
    if present == translated.new_offset:
        return replace(translated, commit=False)
    again = replace(translated, reread=max(translated.reread or 0, present - translated.new_offset))
    if rules.allow_rewind:
        return again
    if present > place.latest and at.only_ours and at.direction == TO_DOWNSTREAM:
        # The group did not go back, its records did: records that a log lost are copied again, and may be at lower
        # offsets.
        return replace(again, verdict=MOVED_BACK)
    return replace(again, verdict=BACKWARDS, commit=False)


def _unwritten(translated: Translation, present: Optional[CommittedOffset], verdict: str) -> Translation:
    again = 0 if present is None or translated.new_offset is None else present.offset - translated.new_offset
    return replace(translated, verdict=verdict, commit=False, reread=max(translated.reread or 0, again))


def _is_active(at: GroupPosition, rules: TranslationRules) -> bool:
    """Whether consumers may be working with the group on the other side, or another flow moves it.

    A simple group shows no members, dead or alive. At an offset that only this mirror committed no other client
    commits."""
    if at.group is None:
        return False
    if at.group.has_members or at.others:
        return True
    if not at.group.simple or rules.simple_groups == "include" or at.present is None:
        return False
    return at.present.offset not in (at.ours, at.ours_before)
