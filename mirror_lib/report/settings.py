"""The settings that the file gives a flow, as it writes them, without anything that may be secret. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Sequence, Tuple

from mirror_lib.config.document import Entry
from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.config.settings import ENABLED, SETTINGS
from mirror_lib.config.values import FLOW

NOT_SHOWN = "not shown: it comes from a reference, so it may be secret"
NOT_SHOWN_OF_CLASS = "not shown: it is for a class of yours"
GIVEN = [each for each in SETTINGS if each.level == FLOW and each.name != ENABLED]


@dataclass(frozen=True)
class SettingValue:
    """A setting that the file has at `place` (`file:line`)."""

    name: str
    value: str
    default: str
    place: str


def cluster_facts(cluster: ClusterConfig, role: str) -> Tuple[str, str]:
    """The alias, and what may be shown of the cluster; `role` is the client that copies from it or to it."""
    protocol = cluster.client_properties(role).get("security.protocol", "PLAINTEXT")
    return cluster.alias, f"{cluster.bootstrap_servers} ({protocol.strip().upper()})"


def shown_state(state: str, entries: Sequence[Entry]) -> str:
    return NOT_SHOWN if any(each.hidden and each.written == "state" for each in entries) else state


def given_settings(flow: ReplicationFlow, entries: Sequence[Entry]) -> Tuple[SettingValue, ...]:
    """In the order of docs/reference/settings.md. `entries` are the entries of the file."""
    # Of a place with several keys the one of that name; in another dialect a setting may have another name.
    at: Dict[Tuple[str, str], Entry] = {}
    for each in entries:
        at.setdefault((each.place, ""), each)
        at[each.place, each.key] = each
    found = []
    for setting in GIVEN:
        place = flow.places.get(setting.name, "")
        entry = at.get((place, setting.name)) or at.get((place, ""))
        if entry is not None:
            value = entry.value if isinstance(entry.value, str) else ", ".join(entry.value)
            shown = NOT_SHOWN if entry.hidden else value
            found.append(SettingValue(setting.name, shown, setting.default or "none", place))
    of_classes = (each for each in entries if each.key in flow.custom_properties)
    return (*found, *(SettingValue(each.key, NOT_SHOWN_OF_CLASS, "none", each.place) for each in of_classes))


def unset_count(settings: Sequence[SettingValue]) -> int:
    return len({each.name for each in GIVEN} - {each.name for each in settings})
