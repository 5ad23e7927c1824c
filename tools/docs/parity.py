"""The tables of keys and options in, the text of docs/reference/mirrormaker-keys.md out: what becomes of each of
MirrorMaker's keys here.

`python -m tools.docs.parity > docs/reference/mirrormaker-keys.md` writes the page.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, Tuple

from mirror_lib.config.keys import Unused, unused
from mirror_lib.config.mm1_reader import CLIENT_KEYS, OPTIONS, RENAMED, Option
from mirror_lib.config.settings import BY_NAME, MISSPELLINGS, OLD_NAMES
from tools.docs.mm2_keys import CLIENTS, SECTIONS

Row = Tuple[str, str, str]

_HEAD = """# Parity with MirrorMaker

<!-- Written by `python -m tools.docs.parity`; change mirror_lib/config/ instead. -->

What becomes of each key of MirrorMaker 2 (4.3.1, and the names of earlier releases) and of each option of
MirrorMaker 1. `*` stands for any ending. [settings.md](settings.md) has values, defaults and what is only here;
[migrate/choose.md](../migrate/choose.md) goes through a move.

| word | meaning |
| --- | --- |
| supported | does what it does there |
| differs | is heeded, and something is not as there |
| ignored | accepted, named once at the start, without effect |
| refused | the file is not accepted, since records would be copied otherwise than it says |
"""
_FORMS: Tuple[Row, ...] = (
    ("`A->B.key`, `A.key`, bare `key`", "supported", "with MirrorMaker's precedence"),
    ("bare `key` that MirrorMaker drops", "differs", "a setting counts for every flow; `consumer.`, `producer.` and "
     "`admin.` too, with a warning; a name that is no key is refused, with its line and the nearest key"),
    ("`A.consumer.x`, `A->B.source.consumer.x`, `A->B.producer.override.x` and their like", "supported", ""),
    ("`A.producer.x`, `A->B.producer.x`", "differs", "both are for what writes records; there the first is for the "
     "worker's producer, and the second for that of offset syncs"),
    ("client properties of sizes, waits and acknowledgements: `linger.ms`, `fetch.max.bytes`, `acks` and their like",
     "ignored", "what copies speaks Kafka's protocol itself; only Spark's source, which looks where a log ends, has "
     "them"),
    ("`${env:NAME}`, `${file:/path:key}`, `${dir:/path:file}`", "supported", "in every value but `clusters`, by these "
     "names or the names of `config.providers`; one that is not found is refused, where Kafka leaves the text"),
    ("`${name:…}` of a provider class of your own", "refused", "no Java class runs here"),
    ("comments after a value, quotes round it, a key given twice", "differs", "put right with a warning, where Java "
     "takes them into the value or takes the last in silence"),
    ("patterns", "differs", "Python's regular expressions; what differs from Java's is refused, or listed in "
     "settings.md"),
    ("`connect-mirror-maker.sh FILE --clusters B C`", "supported", "`mirror run FILE --clusters B C`: the flows into "
     "these clusters"),
)
_CONNECT: Tuple[Row, ...] = (
    ("`MirrorSourceConnector`, `MirrorCheckpointConnector`, `MirrorHeartbeatConnector`", "supported", "as JSON of any "
     "form that Connect's REST takes or gives, or as a standalone worker's `.properties`"),
    ("two `MirrorSourceConnector` of one source and target", "refused", "run each with a configuration and a `name` of "
     "its own"),
    ("`MirrorCheckpointConnector` without `MirrorSourceConnector`", "refused", "offsets are translated by what this "
     "mirror copied"),
    ("client properties of the checkpoint and heartbeat connectors", "ignored", "the source connector's "
     "serve the whole flow; `source.cluster.` and `target.cluster.` may stand in any"),
    ("pause, resume, restart, status, offsets by REST", "differs", "SIGTERM and a new start, the status line, the "
     "tables"),
)
_CLIENT_NOTE = "serves Spark's client and the mirror's own; settings.md, Clients, says which stores and mechanisms"
# What the tables of settings cannot say, since there the key is read by its reader, or is another one.
_READ_ELSEWHERE: Mapping[str, Tuple[str, str]] = {
    "name": ("ignored", "connectors have no names here; in a dedicated file it is the mirror's, see settings.md"),
    "connector.class": ("supported", "says which part of the flow the file is; without meaning in a dedicated file"),
    "source.cluster.alias": ("supported", "the A of `A->B`; without meaning in a dedicated file"),
    "target.cluster.alias": ("supported", "the B of `A->B`; without meaning in a dedicated file"),
    "config.providers*": ("differs", "names of Kafka's three providers are heeded; limits set on them are not applied"),
}


def page() -> str:
    """The whole page as Markdown."""
    parts = [_HEAD, _section("Forms of MirrorMaker 2's file", "form", _FORMS)]
    parts += [_section(title, "key", (key_row(key) for key in keys)) for title, keys in SECTIONS]
    parts.append(_section("Misspelt keys that are read as meant", "key", map(_slip, MISSPELLINGS)))
    parts.append(_section("Kafka Connect", "", _CONNECT))
    parts.append(_section("MirrorMaker 1: options", "option", map(_option, OPTIONS)))
    for file, rows in CLIENT_KEYS.items():
        renamed = [(f"`{old}`", "supported", f"read as `{new}`") for old, new in RENAMED[file].items()]
        parts.append(_section(f"MirrorMaker 1: --{file}", "key", [*renamed, *map(_unused, rows)]))
    return "\n".join(parts)


def key_row(key: str) -> Row:
    """Key, what becomes of it, and how or why. KeyError for a key that the tables of settings do not know."""
    shown = f"`{key}`"
    if key in CLIENTS:
        return shown, "supported", _CLIENT_NOTE
    if key in _READ_ELSEWHERE:
        return (shown, *_READ_ELSEWHERE[key])
    if key in OLD_NAMES:
        return shown, "supported", f"the old name of `{OLD_NAMES[key]}`"
    setting = BY_NAME.get(key)
    row = unused(key[:-1] if key.endswith("*") else key)
    if setting is not None:
        return shown, setting.status, setting.note
    if row is None:
        raise KeyError(key)
    return shown, "refused" if row.refused else "ignored", row.reason


def _slip(wrong: str) -> Row:
    return f"`{wrong}`", "supported", f"read as `{MISSPELLINGS[wrong]}`, with a warning"


def _option(option: Option) -> Row:
    names = ", ".join(f"`--{name}`" for name in (option.name, *option.other_names))
    return names, option.status, option.reason or (option.meaning if option.status == "supported" else "")


def _unused(row: Unused) -> Row:
    return ", ".join(f"`{name}`" for name in row.names), "refused" if row.refused else "ignored", row.reason


def _section(title: str, first: str, rows: Iterable[Row]) -> str:
    lines: List[str] = [f"## {title}", "", f"| {first} | | how, or why |", "| --- | --- | --- |"]
    # Keys with one answer share a row.
    names: Dict[Tuple[str, str], List[str]] = {}
    for name, status, text in rows:
        names.setdefault((status, text), []).append(name)
    lines += [f"| {_cell(', '.join(own))} | {status} | {_cell(text)} |" for (status, text), own in names.items()]
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
