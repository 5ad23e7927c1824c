"""Writes docs/reference/json.md: `python -m tools.docs.json_documents > docs/reference/json.md`.

Keys and types are read off documents that the code prints (tests/unit/documents.py). Here are their meanings. A key
without a meaning, and a meaning without a key, are errors.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Sequence, Set, Tuple

from tests.unit.documents import documents

_HEAD = """\
# JSON documents

<!-- Written by `python -m tools.docs.json_documents`; change the meanings there. -->

`--json` prints one document a line. Durations are in seconds, times in Unix seconds, sizes in bytes. `a[].b` is the
key `b` of each element of the array `a`; `a.{b,c}` are two keys. `?` marks a key that may be absent. Releases may add
keys. The output of `mirror translate-position` has the form of its input.

## Common keys
"""
_INTRO = {
    "mirror run: a cycle": "One document for each cycle of a flow. `mirror mm1` prints the documents of `mirror run`.",
    "mirror run: the end of a flow": "An error of a flow that copies nothing, and of `mirror translate`, has `flow`, "
    "`error`, `code`, `exit_code` only.",
    "mirror translate: a cycle": "`mirror run` prints it too.",
    "mirror doctor": "One document for each check.",
    "mirror cutover run": "A document before each step, and one after it. `cutover back` prints them too.",
    "Log lines": "With `MIRROR_LOG_FORMAT=json` standard error has one object a line.",
}
# By name, where the value is no array or object.
COMMON: Mapping[str, str] = {
    "flow": "`A->B`",
    "topic": "source topic",
    "partition": "number",
    "remote_topic": "topic on the target",
    "partitions": "count",
    "group": "consumer group",
    "cluster": "cluster alias",
    "run_id": "id of the run",
    "exit_code": "exit code of the flow",
    "error": "error message",
    "code": "code for `mirror help`",
    "records": "count",
    "bytes": "size in the target log",
    "seconds": "duration",
    "records_per_second": "rate",
    "lag": "offsets not copied",
    "lag_seconds": "age of the oldest uncopied record",
    "kept_seconds": "minimum time until the source deletes uncopied records",
    "kept_bytes": "size until the source deletes uncopied records",
    "verdict": "result in words",
    "reason": "reason",
    "detail": "what was found",
    "remedy": "what to do",
    "what": "what is wrong",
    "unknown": "it makes the state `unknown`",
    "action": "what is done",
    "kind": "kind",
    "at": "time",
    "host": "client host",
    "pattern_type": "`LITERAL` or `PREFIXED`",
    "principal": "Kafka principal",
    "operation": "Kafka operation",
    "permission": "`ALLOW` or `DENY`",
    "driver": "host, PID namespace and process",
    "started": "start time",
    "last_sign": "last sign of life",
    "replication_factor": "replication factor",
    "filtered": "records that `where` or `transform` dropped in this run, or in this cycle; null: not counted",
    "recovered": "records found on the target that the ledger did not have",
    "delivery": "`exactly-once` or `at-least-once`",
    "positions": "count",
    "source_lag": "unread offsets on the source",
    "target_lag": "unread offsets on the target",
    "moved_at": "last offset commit; null for none",
    "target_markers": "transaction markers in `target_lag`",
    "active": "it has members on the target",
    "present_offset": "committed offset now",
}
# Objects whose keys are names or words, not the document's.
OPEN = ("verdicts", "flows", "changes", "silent", "configs", "blocked")
MEANINGS: Mapping[str, Mapping[str, str]] = {
    "mirror run: a cycle": {
        "batch_id": "Spark's batch id; -1 outside a batch",
        "copy_seconds": "duration of the slowest task",
        "behind_records": "offsets not copied",
        "behind_seconds": "age of the oldest last-copied record among the partitions with lag",
        "stopped": "stopped partitions",
        "waiting": "state of the flow",
        "source_throttled_seconds": "throttled by source quotas",
        "target_throttled_seconds": "throttled by target quotas",
    },
    "mirror run: an outage": {
        "outage.side": "`source` or `target`",
        "outage.since": "start time",
        "outage.seconds": "duration; null while it lasts",
    },
    "mirror run: topic configs, ACLs, heartbeats": {
        "control.topic_configs": "configs changed since the start",
        "control.acls_created": "ACLs created",
        "control.acls_deleted": "ACLs deleted",
        "control.heartbeats": "heartbeats written",
        "control.problems": "sentences",
    },
    "mirror run: the end of a flow": {
        "note": "names and patterns in `topics` and `groups` without a match",
        "waiting": "offsets that wait for open transactions",
    },
    "mirror run --if-running exit": {
        "process": "process id on this machine",
        "already_running": "always true",
    },
    "mirror translate: a cycle": {
        "committed": "offsets committed",
        "refused": "offsets refused",
        "checkpoints": "checkpoint records written",
        "verdicts": "partitions by verdict",
        "unreadable": "unreadable groups, sentences",
        "not_moved": "groups that need the operator, sentences",
    },
    "mirror status": {
        "continuous": "a run continues until stopped",
        "partitions[].log_start": "first offset",
        "partitions[].log_end": "end offset",
        "partitions[].position": "next offset to copy",
        "partitions[].copied_at": "last ledger commit",
        "partitions[].deleted": "offsets deleted uncopied",
        "partitions[].size_limit": "`retention.bytes`",
        "partitions[].heartbeats": "mirrors write it, no application",
        "run": "last run",
        "run.ended": "end time",
        "run.outcome": "how it ended",
        "run.killed": "its process is gone",
        "run.running": "it is running",
        "incidents": "rows of 30 days; null: unreadable",
        "incidents[].from_offset": "first offset",
        "incidents[].until_offset": "offset after the last",
        "verified": "last verification",
        "verified.topics": "count",
        "verified.scope": "what was compared",
        "verified.first_difference": "first difference",
        "verified.differing": "topics that differ",
        "blocked": "reason by topic that cannot be copied",
        "matchless[].key": "`topics` or `groups`",
        "matchless[].place": "file and line",
        "matchless[].sentence": "names that the source lacks",
        "unread": "what could not be read",
        "leaderless": "source partitions without a leader",
        "cutover": "last cut-over",
        "cutover.direction": "`over` or `back`",
        "cutover.step": "last step that began",
        "cutover.complete": "all steps are done",
        "cutover.refused": "the step ended with an error",
        "transactions[].producer": "its producer",
        "transactions[].since": "first offset",
        "transactions[].held": "offsets that wait for its end",
        "transactions[].at": "timestamp of its last record",
        "transactions[].started": "start, by its coordinator",
        "state": "`healthy`, `degraded`, `unknown`",
        "eta_seconds": "time to copy the lag",
        "problems[].code": "code for scripts",
    },
    "mirror report": {
        "page": "file",
        "sha256": "digest of the file",
        "bytes": "size of the file",
        "flows": "state by flow",
    },
    "mirror doctor": {
        "subject": "cluster, flow, `spark` or state folder",
        "code": "kind of check",
        "level": "`ok`, `warning` or `blocking`",
        "error": "code for `mirror help`",
    },
    "mirror plan": {
        "engine": "how records are changed",
        "engine.engine": "`records`",
        "engine.changes": "settings that change records",
        "copying.tasks_max": "`tasks.max`",
        "copying.batch_max_seconds": "`batch.max.seconds`",
        "copying.max_bytes_per_second": "rate limit",
        "copying.isolation_level": "isolation level",
        "refused": "why a run is refused",
        "warning": "what the target does not guarantee",
        "problems": "of the topics, as `mirror status` has them",
        "waiting": "offsets that wait for open transactions",
        "changes": "number of changes by kind",
        "topics[].topic_id": "topic id",
        "topics[].remote_topic_id": "topic id on the target",
        "topics[].remote_partitions": "partitions on the target",
        "topics[].create": "topic to create",
        "topics[].create.configs": "its configs",
        "topics[].grow_to": "new partition count",
        "topics[].notes": "remarks",
        "dead_letters": "dead-letter topic to create",
        "dead_letters.name": "its name",
        "dead_letters.configs": "its configs",
        "skipped[].wanted": "the flow selects it",
        "matchless": "patterns without a topic",
        "matchless_groups": "names without a group",
        "configs": "topic configs",
        "configs[].config": "key",
        "configs[].from": "value on the target",
        "configs[].to": "new value",
        "configs[].source_value": "value on the source",
        "acls": "ACLs of remote topics",
        "groups": "groups",
        "groups[].status": "`translated`, `left alone` or `skipped`",
        "groups[].partitions": "topic and partition pairs",
        "internal_topics": "internal topics",
        "internal_topics[].alias": "cluster alias",
        "internal_topics[].others": "topics of other settings",
        "silent": "reason of each null part",
    },
    "mirror plan --topic, --group": {
        "exists": "the source has it; null: the plan did not ask",
        "taken": "it is copied or translated",
        "key": "deciding key; null: a rule without a key",
        "place": "its `file:line`, or `default`",
    },
    "mirror verify": {
        "equal": "nothing differs, and everything that the file and the scope ask for was compared",
        "topics[].not_copied": "offsets not copied",
        "topics[].differences": "first difference of each partition",
        "topics[].differences[].upstream_offset": "source offset",
        "topics[].differences[].downstream_offset": "target offset",
        "topics[].differences[].records": "number of differences",
        "topics[].unknown": "what was not compared",
        "topics[].left_out": "offsets that `on.error: skip` skipped",
        "topics[].left_out[].offsets": "count",
        "topics[].left_out[].ranges": "first offset and end",
        "waiting": "offsets that wait for open transactions",
    },
    "mirror groups plan": {
        "direction": "`to downstream` or `to upstream`",
        "run_id": "run; null without commits",
        "positions[].offset": "committed offset",
        "positions[].to_topic": "topic on the other cluster",
        "positions[].to_partition": "its partition, null if `repartitioned`",
        "positions[].to_offset": "translated offset",
        "positions[].re_read": "offsets read again, at most",
        "positions[].lost": "offsets skipped unread",
        "positions[].metadata_dropped": "the offset's metadata is not committed",
        "unreadable": "unreadable groups, sentences",
    },
    "mirror groups rollback": {
        "undo_run_id": "run of the rollback",
        "positions[].back_to": "restored offset",
    },
    "mirror cutover run": {
        "cutover_id": "the same in all steps",
        "direction": "`over` or `back`",
        "step": "name of the step",
        "status": "`started`, `done` or `failed`",
        "detail": "one sentence",
    },
    "mirror cutover plan": {
        "gates[].subject": "flow",
        "gates[].code": "condition",
        "gates[].level": "`ok` or `blocking`",
        "rate": "records a second of the last run",
        "records": "records on the source",
    },
    "mirror failover": {
        "seen_at": "last sign of the mirror",
        "lag": "last recorded lag, offsets",
        "topics[].offsets": "offsets in the log",
        "topics[].copied_at": "last ledger commit",
        "topics[].here": "the remote topic exists",
        "unread": "what could not be read",
        "repartitioned": "no group's offset has a place on the target",
    },
    "mirror takeover": {
        "run_id": "run; null without `--execute`",
        "partitions[].taken_from": "source of the offset",
        "partitions[].kept_offset": "next offset of MirrorMaker",
        "partitions[].upstream_offset": "next source offset",
        "partitions[].downstream_offset": "end of the remote log",
        "partitions[].tail_records": "records after `kept_offset`",
        "partitions[].doubled_records": "records copied twice",
        "partitions[].compared_records": "records compared",
        "partitions[].older_records": "the remote log has earlier records",
    },
    "Log lines": {
        "time": "UTC, ISO 8601",
        "level": "Python's level",
        "message": "text",
        "trace": "Python traceback",
    },
}
_TYPES = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string"}


def page() -> str:
    """The page as Markdown. Raises KeyError for a key without a meaning, ValueError for a meaning without a key."""
    made = {title: keys_of(found) for title, found in documents().items()}
    common: Dict[str, Set[str]] = {}
    sections = [_section(title, keys, common) for title, keys in made.items()]
    unused = sorted((COMMON.keys() - common.keys()) | (MEANINGS.keys() - made.keys()))
    if unused:
        raise ValueError(f"no document has {', '.join(unused)}")
    rows = [(name, typed(common[name]), meaning) for name, meaning in COMMON.items()]
    return "\n".join([_HEAD, *_table(rows), "", *sections])


def keys_of(found: Sequence[Mapping[str, Any]]) -> Dict[str, Set[str]]:
    """The types of each key of documents of one kind, in order. A key that a document lacks has the type `?` too."""
    keys: Dict[str, Set[str]] = {}
    parents: Dict[str, int] = {}
    seen: Dict[str, int] = {}
    for path, kind in (each for document in found for each in _walk(document, "")):
        if kind == "":
            parents[path] = parents.get(path, 0) + 1
        else:
            keys.setdefault(path, set()).add(kind)
            seen[path] = seen.get(path, 0) + 1
    for path, kinds in keys.items():
        parent = path.rpartition(".")[0]
        if seen[path] < parents[parent]:
            kinds.add("?")
    return keys


def _walk(value: Mapping[str, Any], path: str) -> Iterator[Tuple[str, str]]:
    """Each object as (path, ""), and each key as (path, type)."""
    yield path, ""
    for key, each in value.items():
        inner = f"{path}.{key}" if path else key
        if isinstance(each, list):
            yield inner, "array"
            for element in each:
                if isinstance(element, dict):
                    yield from _walk(element, f"{inner}[]")
        elif isinstance(each, dict):
            yield inner, "object"
            if key not in OPEN:
                yield from _walk(each, inner)
        else:
            yield inner, _TYPES[type(each)]


def _section(title: str, keys: Mapping[str, Set[str]], common: Dict[str, Set[str]]) -> str:
    meanings = dict(MEANINGS.get(title, {}))
    rows: List[Tuple[str, str, str]] = []
    shared: Dict[str, List[str]] = {}
    missing: List[str] = []
    for path, kinds in keys.items():
        parent, _, name = path.rpartition(".")
        if path in meanings:
            rows.append((path, typed(kinds), meanings.pop(path)))
        elif name in COMMON and not kinds & {"array", "object"}:
            common.setdefault(name, set()).update(kinds - {"?"})
            shared.setdefault(parent, []).append(f"{name}?" if "?" in kinds else name)
        elif not (
            kinds <= {"object", "array", "?"} and any(each.startswith((f"{path}.", f"{path}[].")) for each in keys)
        ):
            missing.append(path)  # the keys below another one show that it is an object or an array of objects
    if missing:
        raise KeyError(f"{title}: no meaning for {', '.join(missing)}")
    if meanings:
        raise ValueError(f"{title}: no document has {', '.join(meanings)}")
    own = [f"`{name}`" for name in shared.pop("", [])]
    lists = [*own, *(f"`{parent}.{_braced(names)}`" for parent, names in shared.items())]
    lines = [f"## {title}", "", *([_INTRO[title], ""] if title in _INTRO else []), *(_table(rows) if rows else []), ""]
    return "\n".join([*lines, *([f"Common: {', '.join(lists)}.", ""] if lists else [])])


def _braced(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{{{','.join(names)}}}"


def typed(kinds: Set[str]) -> str:
    """The types in one word: `integer/null`. An integer is a number too."""
    named = kinds - {"?"} - ({"integer"} if "number" in kinds else set())
    return "/".join(sorted(named, key=lambda kind: (kind == "null", kind))) + ("?" if "?" in kinds else "")


def _table(rows: Sequence[Tuple[str, str, str]]) -> List[str]:
    return ["|key|type|meaning|", "|---|---|---|", *(f"|`{key}`|{kind}|{meaning}|" for key, kind, meaning in rows)]


if __name__ == "__main__":
    print(page(), end="")
