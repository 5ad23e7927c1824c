"""Formats a `FlowPreview` as a diff for people.

`+` created, `~` changed, `-` deleted, `!` blocked. Unchanged items are counted and long lists are cut; `show_all` lists
everything, unchanged items after `=`.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from mirror_lib.control.topic_configs import DELETE, KEEP, SET, ConfigDecision
from mirror_lib.facts import AclBinding, NewTopic
from mirror_lib.plan.preview import ACLS, ACLS_TO_DELETE, CONFIGS, GROUPS, INTERNAL, NOT_KNOWN, FlowPreview
from mirror_lib.text import aligned, counted, some
from mirror_lib.topics.matchless import with_nearest
from mirror_lib.topics.plan import CopiedTopic
from mirror_lib.topics.remote_configs import TIMESTAMP_CONFIGS

MADE, CHANGED, DELETED, SAME, BLOCKED = "+", "~", "-", "=", "!"
NAMES_SHOWN = 5
ROWS_SHOWN = 40
INDENT = "  "

Row = Tuple[str, ...]


class _View(NamedTuple):
    """Whether everything is listed, and the width of the terminal."""

    all: bool
    columns: Optional[int]


def preview_lines(preview: FlowPreview, show_all: bool = False, columns: Optional[int] = None) -> List[str]:
    view = _View(show_all, columns)
    return [
        f"{preview.flow.name}: what a run would change",
        *([f"engine: {preview.engine}"] if preview.engine else []),
        f"copying: {preview.copying}",
        *_delivery(preview),
        *_topics(preview, view),
        *_configs(preview, view),
        *_acls(preview, view),
        *_groups(preview, view),
        *_internal(preview, view),
        summary(preview),
    ]


def _delivery(preview: FlowPreview) -> Iterator[str]:
    if preview.refusal is not None:
        yield f"{BLOCKED} refused: {preview.refusal}"
    if preview.warning:
        yield f"{BLOCKED} warning: {preview.warning}"
    for sentence in (*(f"{each.what}; {each.remedy}" for each in preview.problems), *preview.waiting):
        yield f"{BLOCKED} warning: {sentence}"


def summary(preview: FlowPreview) -> str:
    words = (what.rpartition("s ") for what in preview.changes)
    reported = ", ".join(
        f"{_VERBS[verb]} {counted(count, noun)}" for (noun, _, verb), count in zip(words, preview.changes.values())
    )
    blocked = f"; {counted(len(preview.topics.blocked), 'topic')} cannot be copied" if preview.topics.blocked else ""
    unknown = [name for name, why in preview.silent.items() if why.startswith(NOT_KNOWN)]
    nothing = f"no change is known, but {some(unknown)} could not be read" if unknown else "nothing would change"
    would = f"a run would {reported}" if reported else nothing
    return f"{preview.flow.name}: {would}; it copies {counted(len(preview.topics.copied), 'topic')}{blocked}"


_VERBS = {"created": "create", "grown": "grow", "changed": "change", "deleted": "delete"}


def _topics(preview: FlowPreview, view: _View) -> Iterator[str]:
    plan = preview.topics
    same = [each for each in plan.copied if not each.create and not each.grow_to]
    skipped = [each for each in plan.skipped if not each.wanted]
    yield _head(
        "topics",
        [
            (sum(each.create is not None for each in plan.copied), "to create"),
            (sum(each.grow_to is not None for each in plan.copied), "to grow"),
            (len(same), "copied as is"),
            (len(plan.blocked), "cannot be copied"),
            (len(skipped), "skipped"),
        ],
    )
    shown = [each for each in plan.copied if view.all or each.create or each.grow_to]
    head = ("", "TOPIC", "REMOTE TOPIC", "PARTITIONS", "HOW")
    rows = [_topic_row(preview, each) for each in shown]
    rows += [] if plan.dead_letters is None else [_new("dead letters", plan.dead_letters)]
    yield from _table(head, rows, view)
    topics, why = preview.facts.source_topics, f"matches no topic of {preview.flow.source.alias}"
    notes = [(why, with_nearest(pattern, topics)) for pattern in preview.matchless]
    notes += [(note, each.source.name) for each in plan.copied for note in each.notes]
    yield from _by_reason("NOTE", notes, view)
    yield from _table(("", "BLOCKED", "WHY"), [(BLOCKED, each.name, each.reason) for each in plan.blocked], view)
    yield from _by_reason("SKIPPED", [(each.reason, each.name) for each in skipped], view)


def _topic_row(preview: FlowPreview, topic: CopiedTopic) -> Row:
    if topic.create is not None:
        return _new(topic.source.name, topic.create)
    if topic.grow_to is not None:
        now = preview.facts.target_topics[topic.remote_topic].partitions
        return (CHANGED, topic.source.name, topic.remote_topic, f"{now} -> {topic.grow_to}", "grow")
    return (SAME, topic.source.name, topic.remote_topic, str(topic.partitions), "")


def _new(what: str, topic: NewTopic) -> Row:
    shown = {key: value for key, value in topic.configs.items() if key not in TIMESTAMP_CONFIGS}
    configs = "".join(f", {key}={value}" for key, value in shown.items())
    how = f"create, replication.factor {topic.replication_factor}{configs}"
    return (MADE, what, topic.name, str(topic.partitions), how)


def _configs(preview: FlowPreview, view: _View) -> Iterator[str]:
    if preview.configs is None:
        yield f"{CONFIGS}: {preview.silent[CONFIGS]}"
        return
    decided = [(topic, each) for topic, found in preview.configs.items() for each in found]
    kept = sum(each.action == KEEP for _, each in decided)
    topics = {topic for topic, each in decided if each.action != KEEP}
    changed = (len(decided) - kept, f"to change in {len(topics)} of {len(preview.configs)} remote topics")
    hint = "" if view.all else " (--all says why)"
    yield _head(CONFIGS, [changed, (kept, f"different and kept{hint}")], "all as on the source")
    shown = [_config_row(topic, each) for topic, each in decided if view.all or each.action != KEEP]
    yield from _table(("", "REMOTE TOPIC", "CONFIG", "FROM", "TO", "WHY"), shown, view)


def _config_row(topic: str, each: ConfigDecision) -> Row:
    symbol = {SET: CHANGED, DELETE: DELETED, KEEP: SAME}[each.action]
    to = {SET: str(each.new_value), DELETE: "(not set)", KEEP: f"stays, source {each.source_value}"}[each.action]
    return (symbol, topic, each.key, _value(each.remote_value), to, each.reason)


def _value(value: object) -> str:
    return "(unknown)" if value is None else str(value) or '""'


def _acls(preview: FlowPreview, view: _View) -> Iterator[str]:
    acls = preview.acls
    if acls is None:
        yield f"{ACLS}: {preview.silent[ACLS]}"
        return
    made, gone, skipped = len(acls.create), len(acls.delete), len(acls.skipped)
    counts = [(made, "to create"), (gone, "to delete"), (skipped, "without a counterpart")]
    yield _head(ACLS, counts, "all that the source has are there")
    if ACLS_TO_DELETE in preview.silent:
        yield f"{INDENT}to delete: {preview.silent[ACLS_TO_DELETE]}"
    given = Counter(f"{each.permission} {each.operation}" for each in acls.create)
    if given:
        yield f"{INDENT}of these: {', '.join(f'{right} {count}' for right, count in sorted(given.items()))}"
    rows = [(MADE, *_acl(each)) for each in acls.create] + [(DELETED, *_acl(each)) for each in acls.delete]
    yield from _table(("", "TOPIC", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"), rows, view)
    said = [(each.reason, f"{each.acl.principal} {each.acl.operation} on {each.acl.topic}") for each in acls.skipped]
    yield from _by_reason("SKIPPED", said, view)


def _acl(acl: AclBinding) -> Row:
    return (acl.topic, acl.pattern_type, acl.principal, acl.host, acl.operation, acl.permission)


def _groups(preview: FlowPreview, view: _View) -> Iterator[str]:
    if preview.groups is None:
        yield f"{GROUPS}: {preview.silent[GROUPS]}"
        return
    commits = preview.flow.sync_group_offsets_interval is not None
    going = "to translate" if commits or preview.flow.translates_in_run else "could be translated"
    names = [each.group for each in preview.groups if not each.reason]
    skipped = [(each.reason, each.group) for each in preview.groups if each.reason]
    yield _head(GROUPS, [(len(names), going), (len(skipped), "skipped")], f"{preview.flow.source.alias} has none")
    if names:
        yield f"{INDENT}   {_some(names, view.all)}"
        if not commits:
            reported = "writes checkpoints and " if preview.flow.translates_in_run else ""
            off = f"commits nothing on {preview.flow.target.alias}: sync.group.offsets.enabled is false"
            yield f"{INDENT}   a run {reported}{off}"
    why, present = f"matches no group of {preview.flow.source.alias}", [each.group for each in preview.groups]
    yield from _by_reason("NOTE", [(why, with_nearest(name, present)) for name in preview.matchless_groups], view)
    yield from _by_reason("SKIPPED", skipped, view)


def _internal(preview: FlowPreview, view: _View) -> Iterator[str]:
    topics = preview.internal
    if topics is None:
        yield f"{INTERNAL}: {preview.silent[INTERNAL]}"
        return
    words = {False: "to create", None: "to create if missing", True: "there"}
    yield _head(INTERNAL, [(sum(each.exists is exists for each in topics), word) for exists, word in words.items()])
    shown = [each for each in topics if view.all or not each.exists]
    where = [(each.kind, each.topic, f"on {each.alias}", f"written for {', '.join(each.flows)}") for each in shown]
    rows = [(SAME if each.exists else MADE, *row) for each, row in zip(shown, where)]
    yield from _table(("", "WHAT", "TOPIC", "WHERE", "HOW"), rows, view)


def _head(part: str, counts: Sequence[Tuple[int, str]], none: str = "none") -> str:
    return f"{part}: {', '.join(f'{count} {word}' for count, word in counts if count) or none}"


def _table(head: Row, rows: Sequence[Row], view: _View, right: Sequence[int] = ()) -> Iterator[str]:
    if not rows:
        return
    shown = rows if view.all or len(rows) <= ROWS_SHOWN else rows[: ROWS_SHOWN // 2]
    yield from aligned([head, *shown], right, view.columns, INDENT)
    if len(shown) < len(rows):
        yield f"{INDENT}   and {len(rows) - len(shown)} more; --all lists them"


def _by_reason(title: str, reported: Iterable[Tuple[str, str]], view: _View) -> Iterator[str]:
    """(reason, name) pairs: one line a reason, the most frequent first; with `--all` one line a name."""
    if view.all:
        yield from _table((" ", title, "WHY"), [("", name, reason) for reason, name in reported], view)
        return
    names: Dict[str, List[str]] = {}
    for reason, name in reported:
        names.setdefault(reason, []).append(name)
    reasons = sorted(names, key=lambda each: (-len(names[each]), each))
    rows = [("", str(len(names[reason])), reason, _some(names[reason])) for reason in reasons]
    yield from _table((" ", title, "WHY", "WHICH"), rows, view, right=[1])


def _some(names: Sequence[str], show_all: bool = False) -> str:
    if show_all or len(names) <= NAMES_SHOWN + 1:
        return ", ".join(names)
    return some(names, NAMES_SHOWN)
