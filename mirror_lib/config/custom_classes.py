"""Loads classes and functions of the user, `module:Class`, and guards every call to them."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Mapping, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.settings import BY_NAME
from mirror_lib.config.values import is_entry_point
from mirror_lib.errors import ConfigError, CustomClassError

POLICY_KEY = "replication.policy.class"
TOPIC_FILTER_KEY = "topic.filter.class"
GROUP_FILTER_KEY = "group.filter.class"
CONFIG_FILTER_KEY = "config.property.filter.class"

_TEXT, _MAYBE_TEXT, _WHETHER = (str,), (str, type(None)), (bool,)
# What a class must be able to answer, and with which types; `DefaultReplicationPolicy`, `PatternFilter` and
# `PatternConfigFilter` document each.
METHODS: Mapping[str, Mapping[str, Tuple[type, ...]]] = {
    POLICY_KEY: {
        "format_remote_topic": _TEXT,
        "topic_source": _MAYBE_TEXT,
        "upstream_topic": _MAYBE_TEXT,
        "original_topic": _TEXT,
        "heartbeats_topic": _TEXT,
        "checkpoints_topic": _TEXT,
        "offset_syncs_topic": _TEXT,
        "is_heartbeats_topic": _WHETHER,
        "is_mm2_internal_topic": _WHETHER,
        "is_internal_topic": _WHETHER,
        "is_cycle": _WHETHER,
    },
    TOPIC_FILTER_KEY: {"why_not": _MAYBE_TEXT},
    GROUP_FILTER_KEY: {"why_not": _MAYBE_TEXT},
    CONFIG_FILTER_KEY: {"excludes": _WHETHER},
}
_HINTS = {POLICY_KEY: "the easy way is to extend mirror_lib.topics.policy.DefaultReplicationPolicy"}


def entry_point(name: str, key: str, place: str, kind: str) -> Any:
    """What setting `key` names; `kind` is `class` or `function`, and `place` the setting's `file:line`.

    Raises ConfigError where the module cannot be imported, or has nothing of that name that can be called.
    """
    module_name, _, wanted = name.partition(":")
    # The folder is searched last, so that what is installed is never hidden.
    folder = str(Path(place.rpartition(":")[0]).parent)
    sys.path.append(folder)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        advice = "; install it, or put its file next to the configuration file or its folder on PYTHONPATH"
        missing = isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}.")
        sentence = f"{key}: {module_name} cannot be imported: {said(error)}{advice if missing else ''}"
        raise ConfigError(sentence, place) from error
    finally:
        sys.path.remove(folder)
    found = getattr(module, wanted, None)
    if not callable(found):
        raise ConfigError(f"{key}: the module {module_name} has no {kind} {wanted}", place)
    return found


def said(error: Exception) -> str:
    """An error of the user's code in one line: its class, and the first line of what it says."""
    first = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def named_class(flow: ReplicationFlow, key: str) -> str:
    return str(getattr(flow, BY_NAME[key].field))


@dataclass(frozen=True)
class CustomClass:
    """A user's object for the setting `key`. `place` is `file:line`, or the setting where the place is not known."""

    key: str
    name: str
    place: str
    made: object = field(repr=False)

    def ask(self, method: str, *arguments: str) -> Any:
        """Call `method`. Raises CustomClassError where it raises, or answers with another type than in `METHODS`."""
        answers = METHODS[self.key][method]
        called = f"{self.name}.{method}({', '.join(map(repr, arguments))})"
        try:
            answer = getattr(self.made, method)(*arguments)
        except Exception as error:
            # Whatever the user's code raises: it must stop this one topic with a sentence, not the driver with a trace.
            raise CustomClassError(f"{called} failed: {said(error)}", hint=self.place) from error
        if not isinstance(answer, answers):
            wanted = " or ".join("None" if each is type(None) else each.__name__ for each in answers)
            raise CustomClassError(f"{called} returned {answer!r}; it must return {wanted}", hint=self.place)
        return answer


def check_custom_classes(flow: ReplicationFlow) -> None:
    """Make every custom class of `flow`. Raises ConfigError."""
    for key in METHODS:
        if is_entry_point(named_class(flow, key)):
            custom_class(flow, key)


@lru_cache(maxsize=256)
def custom_class(flow: ReplicationFlow, key: str) -> CustomClass:
    """The instance that `flow` has for its setting `key`; made once for each flow.

    Raises ConfigError, with the key's place, where the class cannot be found or made, or lacks a method.
    """
    name, place, prefix = named_class(flow, key), flow.places.get(key, key), key + "."
    given = flow.custom_properties.items()
    properties = {each[len(prefix) :]: value for each, value in given if each.startswith(prefix)}
    found = entry_point(name, key, place, "class")
    try:
        made = found(flow, properties)
    except Exception as error:
        sentence = f"{key}: {name} cannot be made, it is called as {name.partition(':')[2]}(flow, properties)"
        raise ConfigError(f"{sentence}: {said(error)}", place) from error
    lacking = [method for method in METHODS[key] if not callable(getattr(made, method, None))]
    if lacking:
        hint = f"; {_HINTS[key]}" if key in _HINTS else ""
        raise ConfigError(f"{key}: {name} has no method {', '.join(lacking)}{hint}", place)
    return CustomClass(key, name, place, made)
