"""The tables of keys and options in, the text of docs/reference/mirrormaker-keys.md out: what becomes of each of
MirrorMaker's keys here.

`python -m tools.docs.parity > docs/reference/mirrormaker-keys.md` writes the page.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, Tuple

from mirror_lib.config.mm1_reader import NOT_READ, OPTIONS, RENAMED, Option
from mirror_lib.config.settings import BY_NAME, OF_MIRRORMAKER, SETTINGS, unused
from mirror_lib.config.sorted_keys import READ, READ_STARTS
from tools.kafka_names import LIST, names_by_class

Row = Tuple[str, str, str]

_HEAD = """# Parity with MirrorMaker

<!-- Written by `python -m tools.docs.parity`; change mirror_lib/config/ instead. -->

The keys of MirrorMaker 2 (4.3.1 and earlier) and the options of MirrorMaker 1. `*` stands for any ending.
[choose.md](../migrate/choose.md) has the migration.

*Supported* keys work as in MirrorMaker. *Ignored* ones have no effect: `mirror plan CONFIG --all` lists them. A file
with a *refused* one is not accepted, since it would copy other records.
"""
_FORMS: Tuple[Row, ...] = (
    ("a key that MirrorMaker ignores: unknown, a client property without its cluster, of a cluster that is not listed",
     "ignored", "with its line, and the name that may be meant"),
    ("bare `consumer.x`, `producer.x`, `admin.x`", "differs",
     "count for every flow, but logins; MirrorMaker drops all"),
    ("`A.producer.x`, `A->B.producer.x`", "differs", "both are for the producer of records, but logins and servers of "
     "the second, which MirrorMaker has for the producer of offset syncs"),
    ("client properties of sizes, waits, acknowledgements and codecs, such as `linger.ms`, `acks`, `compression.type`",
     "ignored", "record batches are copied as they are; only Spark's source, which finds log ends, has them"),
    ("`${name:…}` of your own provider class", "refused", "no Java class runs here"),
    ("a list with comments between its lines, a key given twice", "differs", "corrected with a warning"),
    ("any name of the file, a byte order mark at its start", "supported", "`.yaml` and `.yml` are this mirror's own"),
    ("`connect-mirror-maker.sh FILE --clusters B C`", "supported", "`mirror run FILE --clusters B C`"),
)
_FORMS_IN_SETTINGS = "[settings.md](settings.md#where-a-key-may-stand) has the forms of keys and values. Also:"
_CONNECT: Tuple[Row, ...] = (
    ("`MirrorSourceConnector`, `MirrorCheckpointConnector`, `MirrorHeartbeatConnector`", "supported",
     "[Connectors](settings.md#connectors)"),
    ("`MirrorCheckpointConnector` without `MirrorSourceConnector`", "supported", "translates by the ledger of another "
     "run with the same `state`"),
    ("client properties of the checkpoint and heartbeat connectors", "ignored", "the source connector's serve the "
     "flow, or those of a checkpoint connector without one; `source.cluster.` and `target.cluster.` may be in any"),
    ("pause, resume, restart, status, offsets by REST", "differs", "SIGTERM and a new start, the status line, the "
     "tables"),
)
CLIENTS = ("bootstrap.servers", "security.protocol", "ssl.*", "sasl.*")
_CLIENT_NOTE = "[Clients](settings.md#clients)"
# What the tables of settings cannot say, since there the key is read by its reader, or is another one.
_READ_ELSEWHERE: Mapping[str, Tuple[str, str]] = {
    "name": ("ignored", "connectors have no names here; in a dedicated file it is the mirror's"),
    "connector.class": ("supported", "in a dedicated file without meaning"),
    "source.cluster.alias": ("supported", "A of `A->B`; in a dedicated file the alias in names of remote topics"),
    "target.cluster.alias": ("supported", "A or B of `A->B`; in a dedicated file without meaning"),
    "config.providers*": ("differs", "names of Kafka's three providers count; their limits do not"),
}
_DIFFERS = "[settings.md](settings.md#for-a-flow) has how"
_IN_SETTINGS = "The other keys are in [settings.md](settings.md#for-a-flow): supported, or with **Differs**."
_ORDER = ("supported", "differs", "ignored", "refused")


def page() -> str:
    """The whole page as Markdown."""
    rows = sorted(map(key_row, mirrormakers_keys()), key=lambda row: _ORDER.index(row[1]))
    rows = [row for row in rows if row[2] not in ("", _DIFFERS)]
    parts = [
        _HEAD,
        _section("Forms of MirrorMaker 2's file", "form", _FORMS, _FORMS_IN_SETTINGS),
        _section("Keys of MirrorMaker 2 and Kafka Connect", "key", rows, _IN_SETTINGS),
        _section("Kafka Connect", "", _CONNECT),
        _section("MirrorMaker 1: options", "option", map(_option, OPTIONS)),
        _client_files(),
    ]
    return "\n".join(parts)


def mirrormakers_keys() -> List[str]:
    """The settings that a ConfigDef of Kafka has, and the keys without meaning here; `*` stands for any ending."""
    kafkas = frozenset().union(*names_by_class(LIST.read_text("utf-8")).values())
    settings = [setting.name for setting in SETTINGS if (setting.client_key or setting.name) in kafkas]
    return [*settings, *CLIENTS, *(name for row in OF_MIRRORMAKER for name in row.names)]


def key_row(key: str) -> Row:
    """Key, what becomes of it, and how or why. KeyError for a key that the tables of settings do not know."""
    shown = f"`{key}`"
    if key in CLIENTS:
        return shown, "supported", _CLIENT_NOTE
    if key in _READ_ELSEWHERE:
        return (shown, *_READ_ELSEWHERE[key])
    setting = BY_NAME.get(key)
    row = unused(key[:-1] if key.endswith("*") else key)
    if setting is not None:
        return (shown, "differs", _DIFFERS) if setting.differs else (shown, "supported", "")
    if row is None:
        raise KeyError(key)
    return shown, "refused" if row.refused else "ignored", row.reason


def _option(option: Option) -> Row:
    names = ", ".join(f"`--{name}`" for name in (option.name, *option.other_names))
    return names, option.status, option.reason or (option.meaning if option.status == "supported" else "")


def _client_files() -> str:
    """What is read of MirrorMaker 1's two files."""
    renamed: Dict[str, List[str]] = {}
    for names in RENAMED.values():
        for old, new in names.items():
            renamed.setdefault(new, []).append(f"`{old}`")
    read = [*map("`{}`".format, READ), *(f"`{start}*`" for start in READ_STARTS)]
    rows = [(", ".join(sorted(read)), "supported", ""), *((", ".join(old), "supported", f"read as `{new}`")
            for new, old in renamed.items()), ("any other key", "ignored", NOT_READ)]
    return _section("MirrorMaker 1: keys of --consumer.config and --producer.config", "key", rows)


def _section(title: str, first: str, rows: Iterable[Row], text: str = "") -> str:
    lines: List[str] = [f"## {title}", "", *([text, ""] if text else []), f"|{first}||how, or why|", "|---|---|---|"]
    # Keys with one answer share a row.
    names: Dict[Tuple[str, str], List[str]] = {}
    for name, status, text in rows:
        names.setdefault((status, text), []).append(name)
    lines += [f"|{_cell(', '.join(own))}|{status}|{_cell(text)}|" for (status, text), own in names.items()]
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
