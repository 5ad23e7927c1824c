"""Decides what to do on the other cluster about one committed offset, and why. Pure.

MirrorMaker 2 commits one past the nearest of 64 syncs, writes nothing for a group older than these, never rewinds, and
leaves it to the broker to refuse an active group. Here the answer is exact at any lag, and each refusal has a verdict.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional, Union

from mirror_lib.facts import CommittedOffset, ConsumerGroup, OffsetRange
from mirror_lib.ledger.intervals import BEFORE, BEYOND, END, PartitionMap, Place
from mirror_lib.ledger.records import GroupOffset

EXACT = "exact"
CLAMPED = "clamped"
BEFORE_FIRST = "before first copied record"
ACTIVE = "active on target"
FOREIGN = "committed by another client"
BACKWARDS = "would move backwards"
MOVED_BACK = "moved back: the remote log lost its tail"
REPARTITIONED = "repartitioned"
# Of an audit row whose offset is not on the target.
NOT_COMMITTED = "recorded, not committed"
# Reasons why the offset of a group is not committed.
NO_ANSWER = "its coordinator does not answer with committed offsets now"
NOT_COPIED = "nothing of this partition is copied yet"
NOTHING_COPIED = f"held: {NOT_COPIED}"
OLDER = "older than what the take-over compared, see mirror takeover --compare"
UNRECORDED = "older than the ledger, which lacks the start of the remote log"

# The action of an audit row, unless it undoes another one.
COMMIT = "commit"

TO_DOWNSTREAM = "to downstream"
TO_UPSTREAM = "to upstream"


def held(ahead_by: int) -> str:
    return f"held: ahead of the ledger by {ahead_by}"


def is_ahead(verdict: str) -> bool:
    return verdict.startswith("held")


def untranslatable(reason: str) -> str:
    """The verdict on an offset that cannot be translated; `reason` is a phrase without a full stop."""
    return f"untranslatable: {reason}"


_BY_HAND = "set the offset with kafka-consumer-groups.sh --reset-offsets, or leave the group out with groups.exclude"
# By verdict that stays until the operator acts, what to do.
WAYS_OUT = {
    FOREIGN: "groups.simple: include moves it if its consumers do not run on the target; groups.exclude leaves it out",
    REPARTITIONED: "start it on the target by time, with kafka-consumer-groups.sh --reset-offsets --to-datetime, or "
    "leave it out with groups.exclude",
    NOT_COMMITTED: "the next run commits it; if the target refuses it, grant Read on the group, or leave it out with "
    "groups.exclude",
    untranslatable(OLDER): _BY_HAND,
    untranslatable(UNRECORDED): _BY_HAND,
}


@dataclass(frozen=True)
class TranslationRules:
    """What the operator allows.

    `allow_rewind`: groups may be moved backwards. `simple_groups`: `exclude` or `include` groups without membership for
    which another client committed last. `shared`: other flows may commit for the same groups, so groups are moved only
    from offsets that this flow committed.
    """

    allow_rewind: bool = False
    simple_groups: str = "exclude"
    shared: bool = False


@dataclass(frozen=True)
class GroupPosition:
    """The facts about one group on one partition on which its translation is based.

    `position` is the group's committed offset on this side, 0 or more. This side is the source if `direction` is
    `TO_DOWNSTREAM`, and the remote topic if it is `TO_UPSTREAM`. `map` is the partition's map, or the reason why there
    is none. On the other side: the partition's `log` (`None` without a leader), the group's `present` offset (`None` if
    it has none), and the `group` itself (`None` if it does not exist).

    `last` is the last audit row of the group and partition. It is written before its commit, so after a crash or a
    refusal the group is still at the row's former offset. `by_mirrormaker`: MirrorMaker committed the present offset.
    `own_log` is this side's log, read after `position`; `None` if it is unknown.
    `left_at`: on the way back, the offset on the source from which the mirror last translated the group."""

    position: CommittedOffset
    direction: str
    map: Union[PartitionMap, str]
    log: Optional[OffsetRange] = None
    present: Optional[CommittedOffset] = None
    group: Optional[ConsumerGroup] = None
    last: Optional[GroupOffset] = None
    by_mirrormaker: bool = False
    own_log: Optional[OffsetRange] = None
    left_at: Optional[int] = None


@dataclass(frozen=True)
class Translation:
    """A decision. `commit`: whether to commit `new_offset` with `metadata` on the other side.

    `new_offset` is the translated offset, whether it is committed or not; `None` if there is none. `reread` is an upper
    bound of the offsets that the group would read again from there (`None` without a `new_offset`). `lost` counts the
    offsets that it would skip unread because the other log no longer has them. `skips_from`: the first offset that
    this side still has and that the group would not read there, because it is lost or was never copied.
    """

    verdict: str
    new_offset: Optional[int] = None
    metadata: str = ""
    commit: bool = False
    reread: Optional[int] = None
    lost: int = 0
    skips_from: Optional[int] = None


def translate(at: GroupPosition, rules: TranslationRules = TranslationRules()) -> Translation:
    """Decide on one group and partition, independently of other partitions.

    The verdict is the first that applies: `repartitioned` (no offset there stands for one here), `untranslatable` (no
    map or no log), `held` (the mirror must catch up first),
    `active on target` (consumers may work there), `committed by another client`, `would move backwards`, then one that
    says how the offset was found: `moved back`, `before first copied record`, `clamped`, `exact`. Only the last four
    commit, and only if the group is at another offset: the same facts after a commit give no second commit.
    """
    if at.map == REPARTITIONED:
        return Translation(REPARTITIONED)
    if at.map == NOT_COPIED:
        return Translation(NOTHING_COPIED)
    if isinstance(at.map, str):
        return Translation(untranslatable(at.map))
    if at.log is None:
        return Translation(untranslatable("the other cluster's partition has no leader now"))
    to_other = at.map.to_downstream if at.direction == TO_DOWNSTREAM else at.map.to_upstream
    place = to_other(at.position.offset)
    if place.kind == BEFORE and (at.map.older or at.direction == TO_UPSTREAM or place.offset > at.log.log_start):
        # The ledger does not cover the remote log from the start: the group may not have read the records before it.
        return Translation(untranslatable(OLDER if at.map.older else UNRECORDED))
    made = _to(place, at, at.log, rules)
    if made.new_offset is None:
        return made
    next_offset = at.position.offset if at.own_log is None else max(at.position.offset, at.own_log.log_start)
    next_place = to_other(next_offset)
    skips = next_place.kind == BEFORE or made.new_offset > next_place.latest
    metadata = at.position.metadata if _keeps_metadata(at, at.map, made.new_offset) else ""
    return replace(made, metadata=metadata, skips_from=next_offset if skips else None)


def _keeps_metadata(at: GroupPosition, a_map: PartitionMap, new_offset: int) -> bool:
    """Whether the metadata is right with the new offset too.

    A client may have stored there, relative to the committed offset, which later records it has processed: any up to
    the end of the log. So all of them must be mapped by one shift."""
    if at.own_log is None:
        return False
    ends = (at.position.offset, new_offset)
    upstream, downstream = ends if at.direction == TO_DOWNSTREAM else ends[::-1]
    return a_map.has_run(upstream, downstream, at.own_log.end - at.position.offset)


def _to(place: Place, at: GroupPosition, log: OffsetRange, rules: TranslationRules) -> Translation:
    """As `translate`, with the place on the other side given, and without metadata."""
    if place.kind == BEYOND:
        return Translation(held(place.beyond_by))
    translated = _within(place, log)
    client = _client_there(at, rules)
    if client is not None:
        again = 0 if at.present is None or translated.new_offset is None else at.present.offset - translated.new_offset
        return replace(translated, verdict=client, commit=False, reread=max(translated.reread or 0, again))
    return translated if at.present is None else _over(translated, at.present.offset, place, at, rules)


def _within(place: Place, log: OffsetRange) -> Translation:
    """The translation limited to the other log, as if the group had no offset there.

    Before the log's start it is the start: the earlier records are lost. After its end it is the end (the log was
    truncated, or its end is not visible yet): the group has not read the next record there.
    """
    offset = min(max(place.offset, log.log_start), log.end)
    reread = max(place.earliest - offset, 0)
    lost = max(offset - place.latest, 0)
    inside = EXACT if place.earliest <= offset <= place.latest else CLAMPED
    verdict = BEFORE_FIRST if place.kind == BEFORE else inside
    return Translation(verdict, offset, commit=True, reread=reread, lost=lost)


def _over(
    translated: Translation, present: int, place: Place, at: GroupPosition, rules: TranslationRules
) -> Translation:
    """The final decision, from `translated` and the `present` offset of the group on the other side."""
    assert translated.new_offset is not None and at.log is not None
    # An offset before the log's start is out of range for a consumer, and `auto.offset.reset` would then decide.
    passes_markers = place.kind == END and translated.verdict == EXACT and present < translated.new_offset
    if place.earliest <= present <= place.latest and present >= at.log.log_start and not passes_markers:
        # The present offset is right, even where the log seems to end before it.
        clamped = translated.verdict == CLAMPED
        right = Translation(EXACT, present, reread=0) if clamped else translated
        return replace(right, commit=False)
    if present < translated.new_offset:
        return translated
    if present == translated.new_offset:
        return replace(translated, commit=False)
    again = replace(translated, reread=max(translated.reread or 0, present - translated.new_offset))
    if rules.allow_rewind:
        return again
    if present > place.latest and at.direction == TO_DOWNSTREAM and only_we_moved(at.position.offset, present, at.last):
        # The target lost records, and the mirror copied them again, perhaps at lower offsets: the group follows them.
        return replace(again, verdict=MOVED_BACK)
    return replace(again, verdict=BACKWARDS, commit=False)


def only_we_moved(position: int, current: Optional[int], last: Optional[GroupOffset]) -> bool:
    """Whether the group is where the commit of its `last` audit row left it, and has not moved backwards on this side
    since. A row that was to move it back counts as well if its commit was not made."""
    if last is None or last.action != COMMIT or current is None or position < last.from_offset:
        return False
    return current == last.new_offset or (current == last.previous_offset and last.verdict == MOVED_BACK)


def _client_there(at: GroupPosition, rules: TranslationRules) -> Optional[str]:
    """The verdict if consumers may be working with the group on the other side, or another flow moves it.

    A group without membership shows no members, whether its consumers run or not. If this mirror or MirrorMaker
    committed the present offset, or the mirror translated the group from it, no other client has committed since."""
    if at.group is None:
        return None
    if at.group.has_members:
        return ACTIVE
    ours = () if at.last is None else (at.last.new_offset, at.last.previous_offset)
    if at.present is None or at.by_mirrormaker or at.present.offset in (*ours, at.left_at):
        return None
    if rules.shared:
        return ACTIVE
    return FOREIGN if at.group.simple and rules.simple_groups != "include" else None
