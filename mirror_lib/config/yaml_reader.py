"""Reads a YAML file into a `Document`: nested maps become MirrorMaker 2's flat keys, each with its line."""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, Optional, Tuple

import yaml

from mirror_lib.config.document import YAML, Document, Entry, Value, config_error, unlisted
from mirror_lib.config.record_change import RENAMES
from mirror_lib.config.settings import BY_NAME, ENABLED
from mirror_lib.errors import ConfigError

_FLOW = re.compile(r"\s*(\S+?)\s*->\s*(\S+)\s*")
_NULL = "tag:yaml.org,2002:null"


def read_yaml(content: bytes, path: str) -> Document:
    """The file's clusters, flows and bare keys, and the errors of what could not be read. Raises `ConfigError` with the
    line for a file that is no YAML, and never shows a value."""
    reader = _Reader(path)
    root = reader.compose(content)
    sections: Dict[str, yaml.Node] = {}
    entries: List[Entry] = []
    for key, node, line in reader.pairs(root):
        if key in ("clusters", "flows"):
            sections[key] = node
        else:
            entries += reader.flatten("", key, node, line)
    if entries and not sections:
        sentence = "the file has neither clusters nor flows; if it is another tool's, give MirrorMaker's file in it"
        raise config_error(sentence, path)
    aliases = [(alias, node) for alias, node, _ in reader.pairs(sections.get("clusters"), "clusters")]
    for alias, node in aliases:
        entries += reader.section(alias, node)
    entries += reader.flows(sections.get("flows"), [alias for alias, _ in aliases])
    entries = reader.without_repeated(entries)
    names = tuple(alias for alias, _ in aliases)
    return Document(path, YAML, names, tuple(entries), errors=tuple(reader.errors))


class _Reader:
    """Walks the nodes of one file. It composes nodes but constructs no objects, so tags can do nothing."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.errors: List[ConfigError] = []

    def compose(self, content: bytes) -> Optional[yaml.Node]:
        """The root node. Only the parser's short problem is repeated: its full text quotes lines of the file."""
        try:
            text = content.decode("utf-8-sig")
            for event in yaml.parse(text, Loader=yaml.SafeLoader):
                if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                    place = self._place(event.start_mark.line if event.start_mark else 0)
                    raise config_error("anchors are not used here; quote a value that begins with & or *", place)
            root: Optional[yaml.Node] = yaml.compose(text, Loader=yaml.SafeLoader)
        except UnicodeDecodeError:
            raise config_error("the file is not UTF-8", self._path) from None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = self._place(mark.line if mark else 0)
            advice = "; quote a value that begins with *" if "alias" in str(error.context) else ""
            raise config_error(f"not valid YAML: {error.problem}{advice}", place) from None
        except yaml.YAMLError:
            raise config_error("not valid YAML", self._path) from None
        return root

    def pairs(self, node: Optional[yaml.Node], section: str = "the file") -> Iterator[Tuple[str, yaml.Node, int]]:
        """Key, value and line (from 0) of each pair of a map; an absent or empty map has none."""
        if node is None or node.tag == _NULL:
            return
        if not isinstance(node, yaml.MappingNode):
            self._wrong(f"{section} must be a map, `key: value` on each line", node.start_mark.line)
            return
        seen: Dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line
            if not isinstance(key, yaml.ScalarNode):
                self._wrong("a key must be plain text", line)
            elif key.value in seen:
                self._wrong(f"{key.value} is given twice, first at {self._place(seen[key.value])}", line)
            else:
                seen[key.value] = line
                yield key.value, value, line

    def flatten(self, scope: str, key: str, node: yaml.Node, line: int) -> Iterator[Entry]:
        """One entry for a value; for a map inside, one for each of its keys, joined with dots. A map that is a value of
        its own stays one entry."""
        if isinstance(node, yaml.MappingNode) and key in BY_NAME and BY_NAME[key].kind is RENAMES:
            named = ((topic, self._value(value, topic)) for topic, value, _ in self.pairs(node))
            items = ((topic, [name] if isinstance(name, str) else name) for topic, name in named if name is not None)
            yield Entry(scope, key, tuple(f"{topic} -> {' '.join(names)}" for topic, names in items), self._place(line))
        elif isinstance(node, yaml.MappingNode):
            for inner, value, inner_line in self.pairs(node):
                yield from self.flatten(scope, f"{key}.{inner}", value, inner_line)
        else:
            found = self._value(node, key)
            if found is not None:
                yield Entry(scope, key, found, self._place(line))

    def section(self, scope: str, node: yaml.Node) -> Iterator[Entry]:
        for key, value, line in self.pairs(node, scope):
            yield from self.flatten(scope, key, value, line)

    def flows(self, node: Optional[yaml.Node], aliases: List[str]) -> Iterator[Entry]:
        """The entries of all flows. A flow that is listed is enabled unless it says otherwise."""
        for name, value, line in self.pairs(node, "flows"):
            scope = self._flow_scope(name, aliases, line)
            if scope is None:
                continue
            entries = list(self.section(scope, value))
            if all(entry.key != ENABLED for entry in entries):
                yield Entry(scope, ENABLED, "true", self._place(line))
            yield from entries

    def without_repeated(self, entries: List[Entry]) -> List[Entry]:
        """A nested map and a dotted key can say the same thing twice, which no single map shows."""
        first: Dict[Tuple[str, str], Entry] = {}
        for entry in entries:
            kept = first.setdefault((entry.scope, entry.key), entry)
            if kept is not entry:
                self.errors.append(config_error(f"{entry.written} is given twice, first at {kept.place}", entry.place))
        return list(first.values())

    def _flow_scope(self, name: str, aliases: List[str], line: int) -> Optional[str]:
        match = _FLOW.fullmatch(name)
        if not match:
            self._wrong(f"flow {name} must be written A->B", line)
            return None
        unknown = [alias for alias in match.groups() if alias not in aliases]
        for alias in unknown:
            self._wrong(f"{name} names {unlisted(alias, aliases)}", line)
        return None if unknown else "->".join(match.groups())

    def _value(self, node: yaml.Node, key: str) -> Optional[Value]:
        if isinstance(node, yaml.SequenceNode):
            if not all(isinstance(item, yaml.ScalarNode) and item.tag != _NULL for item in node.value):
                self._wrong(f"{key} must be a list of plain values", node.start_mark.line)
                return None
            return tuple(item.value for item in node.value)
        if node.tag == _NULL:
            self._wrong(f"{key} has no value; write '' if it is to be empty", node.start_mark.line)
            return None
        return str(node.value)

    def _wrong(self, message: str, line: int) -> None:
        self.errors.append(config_error(message, self._place(line)))

    def _place(self, line: int) -> str:
        return f"{self._path}:{line + 1}"
