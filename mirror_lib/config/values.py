"""The kinds of value a setting may have: text from a file in, a checked Python value out. Errors are `ValueError`."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass
from typing import Callable, Mapping, Optional, Tuple

from mirror_lib.config.document import Value

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
    """Whether `name` is written as a Python class of the user's, `module:Class`."""
    return _ENTRY_POINT.fullmatch(name) is not None


def _boolean(value: Value) -> bool:
    word = one(value).lower()
    if word not in ("true", "false"):
        raise ValueError("must be true or false")
    return word == "true"


def _interval(value: Value) -> Optional[float]:
    seconds = _number(value)
    if seconds == 0:
        raise ValueError("must be a number of seconds above 0 (or -1: never)")
    # Kafka's scheduler takes a negative interval as "never".
    return seconds if seconds > 0 else None


def _seconds(value: Value) -> float:
    seconds = _number(value)
    if seconds <= 0:
        raise ValueError("must be a number of seconds above 0")
    return seconds


def _number(value: Value) -> float:
    try:
        number = float(one(value))
    except ValueError:
        raise ValueError("must be a number of seconds") from None
    if not math.isfinite(number):
        raise ValueError("must be a number of seconds")
    return number


def _milliseconds(value: Value) -> float:
    return _seconds(value) / 1000


def _port(value: Value) -> int:
    number = int(one(value)) if re.fullmatch(r"\d{1,5}", one(value)) else -1
    if not (number == 0 or 1024 <= number <= 65535):
        raise ValueError("must be a port from 1024 to 65535, or 0 for any")
    return number


PORT = Kind("port", _port)


def whole_number(least: int, default_of_broker: bool = False) -> Kind:
    """A whole number from `least` on; with `default_of_broker` also -1."""
    sentence = f"must be a whole number from {least} on" + (", or -1 for the broker's default" * default_of_broker)

    def parse(value: Value) -> int:
        text = one(value)
        if not re.fullmatch(r"-?\d{1,9}", text):
            raise ValueError(sentence)
        number = int(text)
        if number < least and not (default_of_broker and number == -1):
            raise ValueError(sentence)
        return number

    return Kind("number", parse)


def choice(*words: str) -> Kind:
    """One of `words`, upper or lower case."""

    def parse(value: Value) -> str:
        word = one(value).lower()
        if word not in words:
            raise ValueError("must be " + " or ".join(words))
        return word

    return Kind(" or ".join(words), parse)


def replaceable_class(names: Mapping[str, str]) -> Kind:
    """A Java class that has an equal here, by any of the spellings in `names`, or a Python class `module:Class`."""
    known = " or ".join(dict.fromkeys(names.values()))

    def parse(value: Value) -> str:
        name = one(value)
        if name not in names and not is_entry_point(name):
            what = "names a Java class, and Java cannot run here" if "." in name and ":" not in name else "is no class"
            raise ValueError(f"{what}; take {known}, or a Python class of your own, written module:Class")
        return names.get(name, name)

    return Kind("class", parse)


def check_pattern(text: str, position: int) -> None:
    """Raise `ValueError` where `text`, item `position` of a list, is no pattern that Java and Python read alike."""
    place = f"has a pattern (item {position}) that"
    if text.count("{") != text.count("}"):
        raise ValueError(f"{place} was cut in two: commas split the list; give such patterns in a YAML list")
    try:
        with warnings.catch_warnings():
            # Python warns where a set such as [a&&b] or [a[b]] means something else in Java.
            warnings.simplefilter("error", FutureWarning)
            # Before 3.11 it only warns where a flag in the middle would count for the whole pattern.
            warnings.simplefilter("error", DeprecationWarning)
            re.compile(text)
    except FutureWarning:
        raise ValueError(f"{place} has a set within a set, which Java and Python read differently; unfold it") from None
    except DeprecationWarning:
        raise ValueError(f"{place} has a flag after its start; put it first") from None
    except re.error as error:
        at = "" if error.pos is None else f" at character {error.pos + 1}"
        advice = "write '.*' for anything" if text.startswith(("*", "?")) else "Java-only syntax must be rewritten"
        raise ValueError(f"{place} cannot be used: {error.msg}{at}; {advice}") from None
    except (OverflowError, RecursionError):
        raise ValueError(f"{place} is too large") from None


def _patterns(value: Value) -> Tuple[str, ...]:
    patterns = items(value)
    for position, text in enumerate(patterns, start=1):
        check_pattern(text, position)
    return patterns


def _legal_name(value: Value) -> str:
    text = one(value)
    if not _TOPIC_CHARACTERS.fullmatch(text):
        raise ValueError("must be made of the characters that a topic name may have: letters, digits, '.', '_' and '-'")
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


BOOLEAN = Kind("true or false", _boolean)
INTERVAL = Kind("seconds", _interval)
SECONDS = Kind("seconds", _seconds)
MILLISECONDS = Kind("milliseconds", _milliseconds)
PATTERNS = Kind("list of patterns", _patterns)
TEXT = Kind("text", _text)
OPTIONAL_TEXT = Kind("text", one)
LEGAL_NAME = Kind("text", _legal_name)
TRIGGER = Kind("availableNow or a time", _trigger)
