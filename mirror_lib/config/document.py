"""What every file reader produces: entries with scope, key, value and `file:line`; and how a file is refused.

`read_properties` reads Java `.properties` files as `java.util.Properties` does. Entries have no meaning here yet.
"""

from __future__ import annotations

import codecs
import difflib
import re
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import javaproperties

from mirror_lib.errors import ConfigError

YAML = "yaml"
MM2 = "mm2"
CONNECT = "connect"
MM1 = "mm1"

Value = Union[str, Tuple[str, ...]]

_EXACTLY_ONCE = ("exactly.once.source.support", "exactly.once.support")
_SECRET_KEY = re.compile(r"password|secret|jaas|token|key", re.IGNORECASE)


@dataclass(frozen=True)
class Entry:
    """One key of a file: bare (scope `""`), of a cluster (scope `A`) or of a flow (scope `A->B`).

    `value` is a tuple only where YAML gave a list. `place` is `file:line`. `hidden` marks a value that came out of a
    reference such as `${env:NAME}`: it may be secret whatever the key is called. `source` are the lines of a
    `.properties` file as they are. `ignored` is why the key has no effect where it stands. `remarks` report what is
    read otherwise than it is written.
    """

    scope: str
    key: str
    value: Value = field(repr=False)
    place: str
    hidden: bool = False
    source: str = field(default="", repr=False, compare=False)
    ignored: str = ""
    remarks: Tuple[str, ...] = ()

    @property
    def written(self) -> str:
        """The key as a `.properties` file spells it: `A->B.topics`."""
        return f"{self.scope}.{self.key}" if self.scope else self.key

    @property
    def text(self) -> str:
        return self.value if isinstance(self.value, str) else ",".join(self.value)

    @property
    def shown(self) -> str:
        """The value as a message may show it: quoted, or `***` where it could be a secret."""
        return "***" if self.hidden or _SECRET_KEY.search(self.key) else f"'{self.text}'"


@dataclass(frozen=True)
class Document:
    """A file that was read but not yet understood; for connectors, all their files. `aliases` are in file order.
    `errors` are of entries that could not be read: the others are still checked."""

    path: str
    dialect: str
    aliases: Tuple[str, ...]
    entries: Tuple[Entry, ...]
    errors: Tuple[ConfigError, ...] = ()

    @property
    def asks_for_exactly_once(self) -> bool:
        """Whether a MirrorMaker file switches on Kafka Connect's exactly-once support (KIP-618)."""
        words = (each.text.strip().lower() for each in self.entries if each.key in _EXACTLY_ONCE)
        return any(word in ("enabled", "required") for word in words)


def config_error(message: str, place: str) -> ConfigError:
    return ConfigError(message, hint=place)


class Errors(List[ConfigError]):
    """The errors of one file, in the order in which they were found."""

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep an error of the block, the same words once, and go on after it."""
        try:
            yield
        except ConfigError as error:
            if all(error.message != each.message for each in self):
                self.append(error)


def joined(errors: Sequence[ConfigError], path: str) -> ConfigError:
    if len(errors) == 1:
        return errors[0]
    listed = "".join(f"\n{error}" for error in sorted(errors, key=_line_of))
    return ConfigError(f"{path} has {len(errors)} errors; nothing was started:{listed}")


def _line_of(error: ConfigError) -> Tuple[str, int]:
    path, _, line = (error.hint or "").rpartition(":")
    return (path, int(line)) if line.isdigit() else (error.hint or "", 0)


def nearest(key: str, names: Iterable[str], cutoff: float = 0.6) -> Optional[str]:
    """The name most like `key`, or `None` where none is alike (1 is equal, 0 has nothing in common)."""
    return next(iter(difflib.get_close_matches(key, list(names), n=1, cutoff=cutoff)), None)


def unlisted(alias: str, aliases: Sequence[str]) -> str:
    like = nearest(alias, aliases)
    known = f"the clusters are {', '.join(aliases)}" if aliases else "the file has no clusters"
    return f"an unknown cluster, {alias}; {f'did you mean {like}?' if like else known}"


def last_of_each(entries: Iterable[Entry]) -> Dict[str, Entry]:
    """The entries by key as written. A key that is given twice counts the second time, as in Java, with a remark."""
    found: Dict[str, Entry] = {}
    for entry in entries:
        first = found.get(entry.written)
        if first is not None:
            twice = f"{entry.written} is given twice, first at {first.place}; the last counts"
            entry = replace(entry, remarks=(*entry.remarks, twice))
        found[entry.written] = entry
    return found


def content_of(path: str) -> bytes:
    """Raises `ConfigError`."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise config_error(f"the file cannot be read: {error.strerror}", path) from None


# A no-break blank of UTF-8 or ISO-8859-1. In UTF-8 the byte A0 also ends letters such as Р.
_NO_BREAK = re.compile("\xc2\xa0|(?<![\x80-\xff])\xa0")
LINE_END = re.compile(r"\r\n|\r|\n")


def read_properties(content: bytes, path: str) -> List[Entry]:
    """All properties in file order, repeated keys included, without a scope. Escapes are undone, and continued lines
    joined. Raises `ConfigError` for a bad escape."""
    # Java reads these files as ISO-8859-1, whatever an editor shows; and takes the mark of UTF-8 for part of a key.
    text = (content[3:] if content.startswith(codecs.BOM_UTF8) else content).decode("iso-8859-1")
    if "\0" in text:
        raise config_error("the file must be UTF-8, and is UTF-16 or binary", path)
    found: List[Entry] = []
    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                if _NO_BREAK.search(element.key):
                    blank = "a key has a no-break blank, which is part of it to Java; write a plain one"
                    raise config_error(blank, f"{path}:{line}")
                found.append(Entry("", element.key, element.value, f"{path}:{line}", source=element.source))
            line += len(LINE_END.findall(element.source))
    except javaproperties.InvalidUEscapeError:
        raise config_error("\\u must be followed by four hexadecimal digits", f"{path}:{line}") from None
    return found
