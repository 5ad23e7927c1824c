"""What the file readers hand on: entries with scope, key, value and place. No meaning is attached here."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Tuple, Union

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
    reference such as `${env:NAME}`: it may be secret whatever the key is called.
    """

    scope: str
    key: str
    value: Value = field(repr=False)
    place: str
    hidden: bool = False

    @property
    def written(self) -> str:
        """The key as a `.properties` file spells it: `A->B.topics`."""
        return f"{self.scope}.{self.key}" if self.scope else self.key

    @property
    def text(self) -> str:
        """The value as one string, a list joined with commas."""
        return self.value if isinstance(self.value, str) else ",".join(self.value)

    @property
    def shown(self) -> str:
        """The value as a message may show it: quoted, or `***` where it could be a secret."""
        return "***" if self.hidden or _SECRET_KEY.search(self.key) else f"'{self.text}'"


@dataclass(frozen=True)
class Document:
    """A file that was read but not yet understood; for connectors, all their files. `aliases` are in file order.

    `comments` are the comment lines of a `.properties` file: a lost setting sometimes hides in one.
    `left_out` are keys that the reader knows to be without effect where they stand, and why.
    """

    path: str
    dialect: str
    aliases: Tuple[str, ...]
    entries: Tuple[Entry, ...]
    comments: Tuple[Tuple[str, str], ...] = ()
    warnings: Tuple[str, ...] = ()
    left_out: Tuple[Tuple[Entry, str], ...] = ()

    @property
    def asks_for_exactly_once(self) -> bool:
        """Whether a MirrorMaker file switches on Kafka Connect's exactly-once support (KIP-618)."""
        given = (*self.entries, *(entry for entry, _ in self.left_out))
        return any(each.key in _EXACTLY_ONCE and each.text.strip().lower() in ("enabled", "required") for each in given)

