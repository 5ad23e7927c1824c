"""Writes a `Document` of any dialect as YAML with the same meaning, for `mirror convert`, and reads it back to check.

References stay references. Comments mark keys whose name or meaning differs; keys without effect are listed at the top
with the reason.
"""

from __future__ import annotations

import os
import re
import textwrap
from dataclasses import dataclass, field, replace
from typing import Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple, Union

import yaml

from mirror_lib.config.document import CONNECT, MM2, YAML, Document, Entry, Value
from mirror_lib.config.keys import Keys, sort_keys
from mirror_lib.config.loader import checked, provider_names, read_document, standard_references, with_values
from mirror_lib.config.settings import (
    BY_NAME,
    DIFFERS,
    EMIT_HEARTBEATS,
    ENABLED,
    FLOW,
    MM2_TOPICS_EXCLUDE,
    MM2_TRIGGER,
    TOP,
    TOPICS_EXCLUDE,
)
from mirror_lib.config.values import PATTERNS, items
from mirror_lib.config.yaml_reader import read_yaml
from mirror_lib.errors import ConfigError

_WIDTH = 110
# Texts that YAML reads as they stand. Everything else is quoted.
_PLAIN = re.compile(r"(?:\./)?[A-Za-z0-9_/][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_PLAIN_ALONE = re.compile(r"[A-Za-z0-9_/$][A-Za-z0-9_./:;,${}-]*[A-Za-z0-9_/}]")
_NO_TEXT = ("null", "Null", "NULL")
_CLEAR_SECRET = re.compile(r"password|jaas|secret|ssl\.keystore\.key", re.IGNORECASE)
_ISOLATION = "isolation.level"
_CHECKPOINTS = "emit.checkpoints.enabled"
# Bare keys for the defaults of MirrorMaker's files that are not YAML's: key, value, the dialects with that default
# (None: each but YAML), and the comment.
_DEFAULTS = (
    (_CHECKPOINTS, "true", None, "MirrorMaker's default. In YAML `mirror run` writes checkpoints where it is said."),
    (EMIT_HEARTBEATS, "true", (MM2,), "MirrorMaker's default: heartbeats also on the sources of flows. `false` writes "
     "none; for none on A alone write B->A: {enabled: false, emit.heartbeats.enabled: false}."),
    (TOPICS_EXCLUDE, MM2_TOPICS_EXCLUDE, (MM2, CONNECT), "MirrorMaker's default up to 3.9, as the file has none. 4.x "
     r"copies a topic such as orders.internal: write mm2.*\.internal for the first pattern to have it copied."),
)


def yaml_text(document: Document, keys: Keys) -> str:
    """The whole file. Values are not checked."""
    return "\n".join(_Writer(document, keys).lines()) + "\n"


class _Writer:
    """Writes one document. Scopes stay what they were, so that the loader's precedence gives the same answers."""

    def __init__(self, document: Document, keys: Keys) -> None:
        self._document = document
        self._keys = keys
        bare = {entry.key: entry.text for entry in document.entries if not entry.scope}
        self._providers: Mapping[str, str] = provider_names(bare)

    def lines(self) -> Iterator[str]:
        """Head, clusters, what counts for all flows, flows, what counts for the whole file."""
        yield from self._head()
        yield "clusters:"
        for alias in self._document.aliases:
            yield from _section(alias, self._clients(alias, 4))
        everything = [*self._settings("", 0), *self._defaults(), *self._clients("", 0)]
        yield from ["", "# For every flow, unless it says otherwise.", *everything] if everything else []
        yield from ["", "flows:"]
        for scope in self._scopes():
            own = [*self._enabled(scope), *self._settings(scope, 4), *self._clients(scope, 4)]
            yield from _section(scope, own)
        yield from ["", *self._whole_file()]

    def _head(self) -> Iterator[str]:
        yield from _comment(f"Converted from {self._document.path}. docs/reference/settings.md lists all keys.", 0)
        if self._document.dialect == YAML:
            yield ""
            return
        yield from _comment("docs/reference/mirrormaker-keys.md says what is not as in MirrorMaker.", 0)
        if not any(_ISOLATION in properties for properties in self._keys.clients.values()):
            yield "#"
            yield from _comment(
                "Records of aborted transactions are left out. MirrorMaker copies them, and so does this file with "
                "consumer.isolation.level: read_uncommitted in its flows.",
                0,
            )
        reasons: Dict[str, List[str]] = {}
        for entry, why in self._keys.ignored:
            reasons.setdefault(why, []).append(entry.written)
        if reasons:
            yield from ["#", "# Left out, because it has no effect here:"]
        for why, written in reasons.items():
            yield from _comment(f"{', '.join(dict.fromkeys(written))}: {why}", 0, "#   ")
        yield ""

    def _scopes(self) -> List[str]:
        """The flows that the file speaks of, then those that a bare `enabled` stands for, in the loader's order."""
        mentioned = [entry.scope for entry in self._document.entries if "->" in entry.scope]
        pairs = [f"{a}->{b}" for a in self._document.aliases for b in self._document.aliases if a != b]
        for_all = self._keys.settings.get(("", ENABLED))
        return list(dict.fromkeys([*mentioned, *(pairs if for_all is not None else [])]))

    def _enabled(self, scope: str) -> Iterator[str]:
        """A flow that is listed runs, so only the others say a word."""
        entry = self._keys.settings.get((scope, ENABLED)) or self._keys.settings.get(("", ENABLED))
        if entry is None:
            yield from _comment("The file does not enable it.", 4)
            yield f"    {ENABLED}: false"
        elif entry.text.strip().lower() != "true":
            yield from self._line(ENABLED, entry, 4)

    def _settings(self, scope: str, indent: int) -> Iterator[str]:
        """What a flow is given, by its own keys or by bare ones; keys for the user's own classes among them."""
        for (where, name), entry in [*self._keys.settings.items(), *self._keys.custom.items()]:
            if where == scope and name != ENABLED and (name not in BY_NAME or BY_NAME[name].level == FLOW):
                yield from self._line(name, entry, indent)

    def _defaults(self) -> Iterator[str]:
        for key, value, dialects, sentence in _DEFAULTS:
            if dialects is not None and self._document.dialect not in dialects:
                continue
            silent = [scope for scope in ("", *self._scopes()) if (scope, key) not in self._keys.settings]
            # A MirrorMaker 2 file also has pairs with heartbeats that it does not mention.
            more = len(silent) > 1 or self._document.dialect == MM2
            if self._document.dialect != YAML and silent[:1] == [""] and more:
                yield from _comment(sentence, 0)
                yield f"{key}: {_value(items(value) if BY_NAME[key].kind is PATTERNS else value)}"

    def _clients(self, scope: str, indent: int) -> Iterator[str]:
        for (where, prefix), properties in self._keys.clients.items():
            if where == scope:
                for key, entry in properties.items():
                    yield from self._line(f"{prefix}.{key}" if prefix else key, entry, indent)

    def _whole_file(self) -> Iterator[str]:
        given = {name: entry for (where, name), entry in self._keys.settings.items() if BY_NAME[name].level == TOP}
        for name, entry in given.items():
            if name != "clusters":
                yield from self._line(name, entry, 0)
        if self._document.dialect != YAML and "trigger" not in given:
            yield from _comment("MirrorMaker never ends. With availableNow a run copies the backlog and ends.", 0)
            yield f"trigger: {MM2_TRIGGER}"

    def _line(self, name: str, entry: Entry, indent: int) -> Iterator[str]:
        for sentence in (*self._notes(name, entry), *_differences(name, self._document.dialect)):
            yield from _comment(sentence, indent)
        value = entry.value
        if isinstance(value, str):
            # Only in a password may a blank at the end count.
            value = standard_references(value if "password" in name else value.strip(), self._providers)
            if name in BY_NAME and BY_NAME[name].kind is PATTERNS and "${" not in value:
                value = items(value)
        else:
            value = tuple(standard_references(item, self._providers) for item in value)
        yield f"{' ' * indent}{_key(name)}: {_value(value)}"

    def _notes(self, name: str, entry: Entry) -> Tuple[str, ...]:
        notes = self._keys.notes.get((entry.scope, entry.key), ())
        if _CLEAR_SECRET.search(name) and "${" not in entry.text:
            notes = (*notes, "A secret in clear: ${env:NAME} or ${file:/path:key} would keep it out of this file.")
        return notes


def _differences(name: str, dialect: str) -> Iterator[str]:
    setting = BY_NAME.get(name)
    if setting is None or dialect == YAML:
        return
    if setting.status == DIFFERS:
        yield f"Not as in MirrorMaker: {setting.note}."


def _section(name: str, lines: Iterable[str]) -> Iterator[str]:
    inside = list(lines)
    yield f"  {_key(name)}:" if inside else f"  {_key(name)}: {{}}"
    yield from inside


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*(->[A-Za-z0-9_.-]+)?", text) else _quoted(text)


def _value(value: Value) -> str:
    if not isinstance(value, str):
        return f"[{', '.join(item if _PLAIN.fullmatch(item) else _quoted(item) for item in value)}]"
    plain = _PLAIN.fullmatch(value) or _PLAIN_ALONE.fullmatch(value)
    return value if plain and value not in _NO_TEXT else _quoted(value)


def _quoted(text: str) -> str:
    return yaml.safe_dump(text, default_style='"', width=float("inf")).rstrip("\n")


def _comment(text: str, indent: int, start: str = "# ") -> Iterator[str]:
    """A sentence as comment lines. What cannot be printed in one is shown as Python would."""
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    first = " " * indent + start
    yield from textwrap.wrap(
        shown, _WIDTH, initial_indent=first, subsequent_indent=first + " " * (start != "# ") * 2,
        break_long_words=False, break_on_hyphens=False,
    )


@dataclass(frozen=True)
class Conversion:
    """The text of a YAML file, and the warnings of the files it was made from. The text may hold secrets they had."""

    text: str = field(repr=False)
    warnings: Tuple[str, ...]


def convert(paths: Union[str, Sequence[str]], environ: Mapping[str, str] = os.environ) -> Conversion:
    """The file or files as YAML. Raises `ConfigError` where `load` would, but for references that are not found here:
    they are written as they are, so the machine that converts need not know them."""
    return convert_document(read_document(paths), environ)


def convert_document(document: Document, environ: Mapping[str, str] = os.environ) -> Conversion:
    """The same for a document that was read already."""
    keys = sort_keys(document)
    if document.errors or keys.errors:
        checked(document, environ)  # raises these, with the errors of the other entries
    text = yaml_text(document, keys)
    unknown = with_values(document, environ)[1]
    if unknown:
        return Conversion(text, tuple(f"values were not checked: {error}" for error in unknown))
    config = checked(document, environ)
    again = checked(read_yaml(text.encode("utf-8"), "the YAML"), environ)
    if replace(again, warnings=()) != replace(config, warnings=()):
        raise ConfigError(f"{document.path} cannot be written as YAML with the same meaning", "please report it")
    return Conversion(text, config.warnings)
