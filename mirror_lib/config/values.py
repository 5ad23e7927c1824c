"""The types of settings: each parses the text of a file into a checked Python value. Errors are `ValueError`.

Numbers, durations, lists, patterns, sizes, topic configs, start positions.
"""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from mirror_lib.config.document import Value
from mirror_lib.facts import TopicPartition

# The trigger of a run that ends by itself, by Spark's name.
AVAILABLE_NOW = "availableNow"

_TRIGGER = re.compile(r"(\d+)\s*(millisecond|second|minute|hour)s?", re.IGNORECASE)
_ENTRY_POINT = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_TOPIC_CHARACTERS = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Kind:
    """A type of value: `name` is for the reference page, `parse` for the file.

    `parse` raises `ValueError` with the end of a sentence ("must be true or false") that never repeats the value.
    """

    name: str
    parse: Callable[[Value], object]


TOP = "top"
FLOW = "flow"


@dataclass(frozen=True)
class Setting:
    """One key. `default` is what a file would say; `kind` turns it into the value of the model's `field`.

    A switch has `switches`, the interval key that it turns off, and no field of its own. `differs` is how it is unlike
    MirrorMaker's, `note` what else is to be known.
    """

    name: str
    kind: Kind
    default: str
    meaning: str
    differs: str = ""
    note: str = ""
    switches: str = ""
    level: str = FLOW
    field: str = ""

    @property
    def client_key(self) -> Optional[str]:
        """The Java client property behind a `consumer.` setting; its value comes from the source's properties."""
        return self.name[len("consumer.") :] if self.name.startswith("consumer.") else None


def key(
    name: str,
    kind: Kind,
    default: str,
    meaning: str,
    *,
    differs: str = "",
    note: str = "",
    switch: Optional[Setting] = None,
) -> Any:
    """A field that the key `name` fills. With a `switch` that is off by default it is `None`."""
    own = Setting(name, kind, default, meaning, differs, note)
    switches = [] if switch is None else [replace(switch, switches=name)]
    on = switch is None or switch.kind.parse(switch.default)
    return field(default=kind.parse(default) if on else None, metadata={"settings": switches, "own": own})


def derived(default: object, *settings: Setting) -> Any:
    """A field that is derived from several keys, `settings` among them, which have no field of their own."""
    return field(default=default, metadata={"settings": [replace(each, field="") for each in settings]})


def rows(model: type) -> Iterator[Setting]:
    """The keys of the fields of a dataclass, in their order."""
    for each in fields(model):
        yield from each.metadata.get("settings", ())
        if "own" in each.metadata:
            yield replace(each.metadata["own"], field=each.name)


def one(value: Value) -> str:
    """The value as one trimmed string; a YAML list is refused."""
    if not isinstance(value, str):
        raise ValueError("must be one value, not a list")
    return value.strip()


def items(value: Value) -> Tuple[str, ...]:
    """A list, split at commas as MirrorMaker does; a YAML list keeps commas inside its items. Blanks are trimmed."""
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(part.strip() for part in parts if part.strip())


def is_entry_point(name: str) -> bool:
    return _ENTRY_POINT.fullmatch(name) is not None


def either(on: str, off: str) -> Kind:
    def parse(value: Value) -> bool:
        word = one(value).lower()
        if word not in ("true", "false", on, off):
            raise ValueError(f"must be {on} or {off}")
        return word in ("true", on)

    return Kind(f"{on} or {off}", parse)


def _interval(value: Value) -> Optional[float]:
    seconds = _number(value)
    if seconds == 0:
        raise ValueError("must be a number of seconds above 0 (or -1: never)")
    # Kafka's scheduler takes a negative interval as "never".
    return seconds if seconds > 0 else None


def _seconds(value: Value, most: float = math.inf) -> float:
    seconds = _number(value)
    if seconds <= 0:
        raise ValueError("must be a number of seconds above 0")
    if seconds > most:
        raise ValueError(f"must be at most {most:g} seconds")
    return seconds


def _number(value: Value) -> float:
    try:
        number = float(one(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("must be a number of seconds")
    return number


def _optional_port(value: Value) -> Optional[int]:
    text = one(value)
    if text.lower() == NONE:
        return None
    number = int(text) if re.fullmatch(r"\d{1,5}", text) else -1
    if not (number == 0 or 1024 <= number <= 65535):
        raise ValueError("must be a port from 1024 to 65535, or 0 for any")
    return number


def _textfile(value: Value) -> str:
    path = one(value)
    if path and not path.endswith(".prom"):
        raise ValueError("must end in .prom, because node_exporter's textfile collector reads no other files")
    return path


def whole_number(least: int, default_of_broker: bool = False) -> Kind:
    """A whole number from `least` on; with `default_of_broker` also -1."""
    sentence = f"must be a whole number from {least} on" + (", or -1 for the broker's default" * default_of_broker)

    def parse(value: Value) -> int:
        text = one(value)
        number = int(text) if re.fullmatch(r"-?\d{1,9}", text) else -2
        if number < least and not (default_of_broker and number == -1):
            raise ValueError(sentence)
        return number

    return Kind("number", parse)


def choice(*words: str, advice: str = "") -> Kind:
    def parse(value: Value) -> str:
        word = one(value).lower()
        if word not in words:
            raise ValueError("must be " + " or ".join(words) + advice)
        return word

    return Kind(" or ".join(words), parse)


def some_of(*words: str) -> Kind:
    def parse(value: Value) -> Tuple[str, ...]:
        found = tuple(dict.fromkeys(each.upper() for each in items(value)))
        unknown = [each for each in found if each not in words]
        if unknown:
            raise ValueError(f"{unknown[0]} is none of {', '.join(words)}")
        return found

    return Kind("list", parse)


def replaceable_class(names: Mapping[str, str], like: Mapping[str, str] = MappingProxyType({})) -> Kind:
    """A Java class that has an equal here, by any of the spellings in `names`, or a Python class `module:Class`. `like`
    has the built-in that does the same as a Java class of others."""
    known = " or ".join(dict.fromkeys(names.values()))

    def parse(value: Value) -> str:
        name = one(value)
        if name not in names and not is_entry_point(name):
            what = "names a Java class, and Java cannot run here" if "." in name and ":" not in name else "is no class"
            instead = f"{like[name]}, which does the same" if name in like else known
            raise ValueError(f"{what}; take {instead}, or a Python class of your own, written module:Class")
        return names.get(name, name)

    return Kind("class", parse)


# What Java and Python read alike: an escape, a set without another one, a number of repeats, a group, a character.
_ALIKE = re.compile(
    r"(?:\\(?![0-7]{3}|[0NU]).|\[\^?\]?(?:\\(?![0-7]{3}|[0-9bNU]).|&(?!&)|[^]\\\[&])*\]|\{\d+(?:,\d*)?\}"
    r"|\((?!\?(?:[P#(]|[a-zA-Z-]*[aLx][a-zA-Z-]*[:)]))|[^\\\[{(])*",
    re.DOTALL,
)
# By the start of what is not, with the longest first. A comment of (?x) could take the end of the whole subscription.
_ADVICE = {
    "\\": "write the character itself",
    "[": "write a set without another in it, and its characters as themselves",
    "{": "write {0,3} for {,3}, or \\{ for a brace",
    "(?P": "write a group without a name: ( … )",
    "(?#": "leave the comment out",
    "(?(": "write out both cases",
    "(?": "leave the flag out",
}


# What a template has in place of a value: of shells, Windows, pages, Ansible and pipelines.
_TEMPLATE = re.compile(r"(?<!\\)\$\{[A-Za-z]|^\$(?:[A-Z_]+$|\()|^%\w+%$|^<[^>]*>$|\{\{|#\{")


def check_pattern(text: str, position: int) -> None:
    """Raise `ValueError` where `text`, item `position` of a list, is no pattern that Java and Python read alike."""
    place = f"has a pattern (item {position}) that"
    if _TEMPLATE.search(text):
        raise ValueError(f"{place} is a placeholder; fill it in, or write ${{env:NAME}}")
    if re.search(r"(?<!\\), ", text):
        raise ValueError(f"has several patterns in item {position}; make each an item of its own")
    if text.count("{") != text.count("}"):
        raise ValueError(f"{place} was cut in two: commas split the list; give such patterns in a YAML list")
    try:
        with warnings.catch_warnings():
            # Python warns of a set such as [a&&b] or [a[b]], and before 3.11 of a flag that is not at the start.
            for warned in (FutureWarning, DeprecationWarning):
                warnings.simplefilter("error", warned)
            re.compile(text)
    except (FutureWarning, DeprecationWarning):
        advice = "write a set without another in it, and a flag at the start"
        raise ValueError(f"{place} Java and Python read differently; {advice}") from None
    except re.error as error:
        at = "" if error.pos is None else f" at character {error.pos + 1}"
        advice = "write '.*' for anything" if text.startswith(("*", "?")) else "Java-only syntax must be rewritten"
        if "unterminated" in error.msg or "unbalanced" in error.msg:
            advice = "commas split the list, so write | inside brackets"
            advice = "leave out brackets round the list" if text.startswith("[") else advice
        raise ValueError(f"{place} cannot be used: {error.msg}{at}; {advice}") from None
    except (OverflowError, RecursionError):
        raise ValueError(f"{place} is too large") from None
    alike = _ALIKE.match(text)
    start = alike.end() if alike else 0
    part = next((part for part in _ADVICE if text.startswith(part, start)), None)
    if part is not None:
        advice = f"{part} at character {start + 1}; {_ADVICE[part]}"
        raise ValueError(f"{place} Java and Python read differently: {advice}")


_FLAGS = re.compile(r"\(\?[a-zA-Z]+\)")
# In a pattern, what may hold a parenthesis that opens or closes nothing.
_LITERAL = re.compile(r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]", re.DOTALL)


def _patterns(value: Value) -> Tuple[str, ...]:
    patterns = items(value) if not isinstance(value, str) else _joined(items(value))
    for position, text in enumerate(patterns, start=1):
        check_pattern(text, position)
    return patterns


def _joined(found: Tuple[str, ...]) -> Tuple[str, ...]:
    """MirrorMaker splits at commas, and joins by `|`: a group may have a comma, and a flag applies to later items."""
    patterns: List[str] = []
    flags, depth = "", 0
    for item in found:
        bare = _LITERAL.sub("", item)
        if depth > 0:
            patterns[-1] += f"|{item}"
        else:
            patterns.append(flags + item)
            own = _FLAGS.match(item)
            flags += own.group() if own else ""
        # A brace that was cut in two is refused as it stands.
        depth += bare.count("(") - bare.count(")") if bare.count("{") == bare.count("}") else 0
    return tuple(patterns)


def _legal_name(value: Value) -> str:
    text = one(value)
    if not _TOPIC_CHARACTERS.fullmatch(text):
        raise ValueError("must be made of the characters that a topic name may have: a-z, A-Z, 0-9, '.', '_' and '-'")
    return text


def _text(value: Value) -> str:
    text = one(value)
    if not text:
        raise ValueError("must not be empty")
    return text


def _trigger(value: Value) -> str:
    text = one(value)
    if text.lower() == "availablenow":
        return AVAILABLE_NOW
    match = _TRIGGER.fullmatch(text)
    if not match or int(match.group(1)) == 0:
        raise ValueError("must be availableNow or a time such as '10 seconds'")
    return f"{int(match.group(1))} {match.group(2).lower()}s"


BOOLEAN = either("true", "false")
INTERVAL = Kind("seconds", _interval)
SECONDS = Kind("seconds", _seconds)
AT_MOST_A_MINUTE = Kind("seconds", lambda value: _seconds(value, most=60))
MILLISECONDS = Kind("milliseconds", lambda value: _seconds(value) / 1000)
PATTERNS = Kind("list of patterns", _patterns)
TEXT = Kind("text", _text)
OPTIONAL_TEXT = Kind("text", one)
LEGAL_NAME = Kind("text", _legal_name)
LEGAL_OR_BLANK = Kind("text", lambda value: _legal_name(value) if one(value) else "")
TRIGGER = Kind("availableNow or a time", _trigger)
OPTIONAL_PORT = Kind("port or none", _optional_port)
TEXTFILE = Kind("path that ends in .prom", _textfile)


NONE = "none"
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([a-z]*)", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "kib": 1024, "mib": 1024**2, "gib": 1024**3}


def _optional_size(value: Value) -> Optional[int]:
    text = one(value)
    if text.lower() == NONE:
        return None
    match = _SIZE.fullmatch(text)
    unit = None if match is None else _UNITS.get(match.group(2).lower())
    if match is None or unit is None:
        raise ValueError("must be a number of bytes, with a unit or without: 5000000, 5 MB, 512 KiB")
    size = round(float(match.group(1)) * unit)
    if size < 1:
        raise ValueError("must be at least one byte; for no limit write none")
    return size


_CONFIG_NAME = re.compile(r"[a-z][a-z0-9.]*")
# A remote topic admits what its source admitted, with its timestamps: a config that breaks that cannot be chosen.
_NOT_CHOSEN = ("message.timestamp.", "max.message.bytes")


def _topic_configs(value: Value) -> Tuple[Tuple[str, str], ...]:
    found: Dict[str, str] = {}
    name = ""
    for item in items(value):
        before, equals, after = (part.strip() for part in item.partition("="))
        if not equals and name:
            found[name] += f",{before}"  # of a value that is a list itself
            continue
        name = before
        if not equals or not after or not _CONFIG_NAME.fullmatch(name):
            raise ValueError("must be a list of NAME=VALUE, for example retention.ms=604800000")
        if name.startswith(_NOT_CHOSEN):
            raise ValueError(
                f"cannot have {name}: the mirror sets it, so that a remote topic accepts every record of its source"
            )
        if name in found:
            raise ValueError(f"has {name} twice")
        found[name] = after
    return tuple(sorted(found.items()))


SIZE = Kind("bytes or none", _optional_size)
TOPIC_CONFIGS = Kind("list of name=value", _topic_configs)


EARLIEST, LATEST = "earliest", "latest"

_OF_GROUP = re.compile(r"group\s+(.+)", re.DOTALL)
_TIME = re.compile(r"\d{4}-\d\d-\d\d.*")
_OFFSET = re.compile(r"([A-Za-z0-9._-]+):(\d{1,9})=(\d{1,18})")
_OFFSETS_LIKE = "orders:0=100, orders:1=250"
_TIME_LIKE = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class OffsetChoice:
    """One of: a `word`, a time in milliseconds since 1970, a consumer group, offsets by topic and partition."""

    word: str = ""
    timestamp: Optional[int] = None
    group: str = ""
    offsets: Tuple[Tuple[TopicPartition, int], ...] = ()


def _start(value: Value) -> Optional[OffsetChoice]:
    parts = items(value)
    # Unchanged where it is a text: a group's name may have commas.
    text = value.strip() if isinstance(value, str) else ", ".join(parts)
    group = _OF_GROUP.fullmatch(text)
    if group is not None:
        return OffsetChoice(group=group.group(1))
    if text.lower() in (EARLIEST, LATEST):
        return OffsetChoice(word=text.lower())
    if _TIME.fullmatch(text):
        return OffsetChoice(timestamp=moment(text))
    if "=" in text:
        return OffsetChoice(offsets=_offsets(parts))
    if parts:
        raise ValueError(
            f"must be earliest, latest, a time such as {_TIME_LIKE}, `group NAME`, or offsets such as {_OFFSETS_LIKE}"
        )
    return None


def moment(text: str) -> int:
    """A time, in milliseconds since 1970. Raises `ValueError` with the end of a sentence."""
    try:
        # Python before 3.11 does not know Z.
        found = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text.strip()))
    except ValueError:
        raise ValueError(f"has a time that cannot be read; write it like {_TIME_LIKE}") from None
    if found.tzinfo is None:
        raise ValueError(f"has a time without a zone; write it like {_TIME_LIKE}")
    since = found - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return int(since.total_seconds() * 1000)


def _offsets(parts: Tuple[str, ...]) -> Tuple[Tuple[TopicPartition, int], ...]:
    found = {}
    for part in parts:
        match = _OFFSET.fullmatch(part)
        if match is None:
            raise ValueError(f"has an offset that is not TOPIC:PARTITION=OFFSET; write them like {_OFFSETS_LIKE}")
        topic, partition, offset = match.groups()
        if (topic, int(partition)) in found:
            raise ValueError(f"names {topic}:{partition} twice")
        found[topic, int(partition)] = int(offset)
    return tuple(found.items())


START_POSITION = Kind("earliest, latest, a time, `group NAME`, or offsets", _start)
