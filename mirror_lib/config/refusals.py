"""The sentences in which a file is refused: always what, what to do, and `file:line`."""

from __future__ import annotations

import difflib
from typing import Iterable, Mapping, Optional, Sequence

from mirror_lib.config.document import Entry
from mirror_lib.errors import ConfigError


def config_error(message: str, place: str) -> ConfigError:
    """A `ConfigError` that prints as `message (file:line)`."""
    return ConfigError(message, hint=place)


def nearest(key: str, names: Iterable[str], cutoff: float = 0.6) -> Optional[str]:
    """The name most like `key`, or `None` where none is alike (1 is equal, 0 has nothing in common)."""
    return next(iter(difflib.get_close_matches(key, list(names), n=1, cutoff=cutoff)), None)


def unknown_cluster(alias: str, aliases: Sequence[str], written: str, place: str) -> ConfigError:
    """The error for a flow or key that names a cluster which the file does not define."""
    like = nearest(alias, aliases)
    known = f"the clusters are {', '.join(aliases)}" if aliases else "the file has no clusters"
    advice = f"did you mean {like}?" if like else known
    return config_error(f"{written} names an unknown cluster, {alias}; {advice}", place)


def place_of_named(sentence: str, given: Mapping[str, Entry], otherwise: str) -> str:
    """The place of the first key of `given` that the sentence names, else `otherwise`."""
    words = (word.strip(":;,()") for word in sentence.split())
    return next((given[word].place for word in words if word in given), otherwise)
