"""A file of Kafka Connect in, the MirrorMaker connectors that it describes out: JSON, or a standalone worker's
`.properties`. What their keys come to is decided in `connectors.py`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Iterator, List, Optional, Sequence, Tuple

from mirror_lib.config.document import Entry
from mirror_lib.config.properties import Property
from mirror_lib.config.refusals import config_error

SOURCE = "MirrorSourceConnector"
CHECKPOINT = "MirrorCheckpointConnector"
HEARTBEAT = "MirrorHeartbeatConnector"
KINDS = (SOURCE, CHECKPOINT, HEARTBEAT)
# Of any other class: a Connect cluster has more connectors than MirrorMaker's.
OTHER = ""

CLASS = "connector.class"
# What Connect's REST answers beside the config. A state other than RUNNING is an order to Connect, not to this mirror.
_BESIDE_CONFIG = ("name", "tasks", "type", "initial_state")
_JSON_KEY = re.compile(r'("(?:[^"\\]|\\.)*")(\s*:)?')


@dataclass(frozen=True)
class Connector:
    """One connector: its class without the package, or `OTHER`, and its keys with no scope yet. `place` is where it
    begins; where it is another's, that of its class."""

    kind: str
    entries: Tuple[Entry, ...]
    place: str

    def entry(self, key: str) -> Optional[Entry]:
        """The entry of that key, if it is there."""
        return next((entry for entry in self.entries if entry.key == key), None)

    def text(self, key: str, default: str = "") -> str:
        """The trimmed value of a key, or `default` where the file says nothing."""
        entry = self.entry(key)
        return default if entry is None else entry.text.strip()


def read_connectors(content: bytes, path: str) -> Tuple[Connector, ...]:
    """The connectors of a JSON file: `{"name": …, "config": {…}}` as Connect's POST takes it, the flat config as its
    PUT does, a list of either, or what `GET /connectors?expand=info` answers. Raises `ConfigError` with the line.
    """
    root = _parsed(content, path)
    configs = list(_configs(root, path))
    if not configs:
        raise config_error("the file has no connector", path)
    return tuple(
        _connector([_entry(key, value, f"{path}:{line}") for key, value, line in each], path) for each in configs
    )


def connector_of_properties(found: Sequence[Property], path: str) -> Optional[Connector]:
    """The connector of a standalone worker's file, or `None` where the file is no connector's."""
    keys = {one.key for one in found}
    # A key with an arrow is a flow's: such a file is a dedicated MirrorMaker's, whatever else stands in it.
    if CLASS not in keys or any("->" in key for key in keys):
        return None
    last = {one.key: Entry("", one.key, one.value, f"{path}:{one.line}") for one in found}
    return _connector(list(last.values()), path)


class _Pairs(List[Tuple[str, Any]]):
    """A JSON object as the parser gives it: key and value of each pair, in file order, doubled keys and all."""


class _Map(List[Tuple[str, Any, int]]):
    """A JSON object: key, value and line of each pair, in file order."""


def _parsed(content: bytes, path: str) -> Any:
    try:
        text = content.decode("utf-8-sig")
        root = json.loads(text, object_pairs_hook=_Pairs)
    except UnicodeDecodeError:
        raise config_error("the file is not UTF-8", path) from None
    except RecursionError:
        raise config_error("not a connector: maps within maps without end", path) from None
    except json.JSONDecodeError as error:
        raise config_error(f"not valid JSON: {error.msg}", f"{path}:{error.lineno}") from None
    return _with_lines(root, _lines_of_keys(text), path)


def _lines_of_keys(text: str) -> Iterator[int]:
    """The line of each key, in file order. The text is known to be valid JSON."""
    line, seen = 1, 0
    for match in _JSON_KEY.finditer(text):
        line += text.count("\n", seen, match.start())
        seen = match.start()
        if match.group(2):
            yield line


def _with_lines(node: Any, lines: Iterator[int], path: str) -> Any:
    """The same, with objects as `_Map`s."""
    if not isinstance(node, _Pairs):
        return [_with_lines(item, lines, path) for item in node] if isinstance(node, list) else node
    pairs = _Map()
    for key, value in node:
        line = next(lines)
        if any(key == earlier for earlier, _, _ in pairs):
            raise config_error(f"{key} is given twice", f"{path}:{line}")
        pairs.append((key, _with_lines(value, lines, path), line))
    return pairs


def _configs(node: Any, path: str) -> Iterator[_Map]:
    """The config of each connector in the file."""
    if not isinstance(node, _Map):
        if not isinstance(node, list):
            raise config_error("the file must hold a connector, or a list of connectors", path)
        for item in node:
            yield from _configs(item, path)
        return
    inside = {key: value for key, value, _ in node}
    if "config" in inside:
        for key, _, line in node:
            if key != "config" and key not in _BESIDE_CONFIG:
                raise config_error(f"{key} stands beside config; move it into config", f"{path}:{line}")
        if not isinstance(inside["config"], _Map):
            raise config_error("config must be a map", f"{path}:{node[0][2]}")
        yield inside["config"]
    elif node and all(_info(value) is not None for _, value, _ in node):
        for _, value, _ in node:
            yield from _configs(_info(value), path)
    else:
        yield node


def _info(node: Any) -> Optional[_Map]:
    """What `GET /connectors?expand=info` says of one connector."""
    inside = {key: value for key, value, _ in node} if isinstance(node, _Map) else {}
    info = inside.get("info")
    return info if isinstance(info, _Map) else None


def _entry(key: str, value: Any, place: str) -> Entry:
    if isinstance(value, bool):
        value = "true" if value else "false"
    elif isinstance(value, (int, float)):
        value = str(value)
    if not isinstance(value, str):
        raise config_error(f"{key} must be one text", place)
    return Entry("", key, value, place)


def _connector(entries: List[Entry], path: str) -> Connector:
    given = next((entry for entry in entries if entry.key == CLASS), None)
    if given is None:
        raise config_error(f"the connector has no {CLASS}", entries[0].place if entries else path)
    # Connect also takes the class without its package, and that without its last word.
    name = given.text.strip().rpartition(".")[2]
    kind = next((kind for kind in KINDS if name in (kind, kind[: -len("Connector")])), OTHER)
    return Connector(kind, tuple(entries), given.place if kind == OTHER else entries[0].place)
