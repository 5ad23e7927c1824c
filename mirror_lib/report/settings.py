"""The settings of a flow that differ from their defaults, as text, without anything that may be secret. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, FrozenSet, List, Optional, Tuple

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.config.record_change import CHANGE_KEYS, ON_OR_OFF, RECORDS, RecordChange
from mirror_lib.config.settings import ENGINE, SETTINGS
from mirror_lib.config.values import FLOW, INTERVAL, MILLISECONDS, OffsetChoice, Setting

NOT_SHOWN = "not shown: it comes from a reference, so it may be secret"
NOT_SHOWN_OF_CLASS = "not shown: it is for a class of yours"
STATE = "state"


@dataclass(frozen=True)
class SettingValue:
    """A setting that has another value than its default. `place` is `file:line`, empty where the file does not have
    the key."""

    name: str
    value: str
    default: str
    place: str = ""


def cluster_facts(cluster: ClusterConfig, role: str) -> Tuple[str, str]:
    """The alias, and what may be shown of the cluster; `role` is the client that copies from it or to it."""
    protocol = cluster.client_properties(role).get("security.protocol", "PLAINTEXT")
    return cluster.alias, f"{cluster.bootstrap_servers} ({protocol.strip().upper()})"


def shown_state(state: str, hidden: FrozenSet[str]) -> str:
    return NOT_SHOWN if STATE in hidden else state


def changed_settings(flow: ReplicationFlow, hidden: FrozenSet[str]) -> Tuple[SettingValue, ...]:
    """In the order of docs/reference/settings.md."""
    found: List[SettingValue] = []
    for setting in SETTINGS:
        if setting.level == FLOW and setting.field:
            value = getattr(flow, setting.field)
            if value != _default(setting):
                found.append(_setting(flow, setting, _text(value, setting), hidden))
        elif flow.change is not None and setting.name in (ENGINE, *CHANGE_KEYS):
            found += _of_change(flow, flow.change, setting, hidden)
    found += [SettingValue(key, NOT_SHOWN_OF_CLASS, "none") for key in sorted(flow.custom_properties)]
    return tuple(found)


def unchanged_count(settings: Tuple[SettingValue, ...]) -> int:
    names = {setting.name for setting in SETTINGS if setting.level == FLOW and (setting.field or _changes(setting))}
    return len(names - {each.name for each in settings})


def _changes(setting: Setting) -> bool:
    return setting.name == ENGINE or setting.name in CHANGE_KEYS


def _of_change(
    flow: ReplicationFlow, change: RecordChange, setting: Setting, hidden: FrozenSet[str]
) -> List[SettingValue]:
    if setting.name == ENGINE:
        return [_setting(flow, setting, RECORDS, hidden)]
    name = CHANGE_KEYS[setting.name]
    value = getattr(change, name)
    return [] if value == getattr(RecordChange(), name) else [_setting(flow, setting, _text(value, setting), hidden)]


def _setting(flow: ReplicationFlow, setting: Setting, text: str, hidden: FrozenSet[str]) -> SettingValue:
    switch = _switch(setting)
    place = flow.places.get(setting.name) or ("" if switch is None else flow.places.get(switch.name, ""))
    default = "off" if _default(setting) is None and switch is not None else setting.default or "none"
    return SettingValue(setting.name, NOT_SHOWN if place in hidden else text, default, place)


def _default(setting: Setting) -> Any:
    """The value of a flow that has neither the key nor its switch."""
    switch = _switch(setting)
    is_off = switch is not None and not switch.kind.parse(switch.default)
    return None if is_off else setting.kind.parse(setting.default)


def _switch(setting: Setting) -> Optional[Setting]:
    """The key that switches off what an interval is for."""
    return next((each for each in SETTINGS if each.switches == setting.name), None)


def _text(value: Any, setting: Setting) -> str:
    if value is None:
        return "off" if setting.kind is INTERVAL else "none"
    if setting.kind is MILLISECONDS:
        return f"{value * 1000:g}"
    if setting.kind is ON_OR_OFF:
        return "on" if value else "off"
    if setting.name == "rename":
        return ", ".join(f"{pattern} -> {name}" for pattern, name in value)
    if isinstance(value, tuple):
        return ", ".join(map(_one, value)) or "none"
    return _one(value)


def _one(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, OffsetChoice):
        return _offsets(value)
    return str(value) if isinstance(value, (str, int)) else repr(value)


def _offsets(choice: OffsetChoice) -> str:
    if choice.timestamp is not None:
        return f"timestamp {choice.timestamp}"
    if choice.group:
        return f"group {choice.group}"
    return choice.word or ", ".join(f"{topic}:{number}={offset}" for (topic, number), offset in choice.offsets)
