"""What `mirror report` shows: the status of each flow, its history, and its configuration without secrets. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

from mirror_lib.status.facts import FlowStatus
from mirror_lib.status.history import FlowHistory


@dataclass(frozen=True)
class SettingValue:
    """A setting that has another value than its default. `place` is `file:line`, empty where the file does not have
    the key."""

    name: str
    value: str
    default: str
    place: str = ""


@dataclass(frozen=True)
class FlowReport:
    """One flow. `clusters`: source and target, each with what the page may show of its configuration."""

    status: FlowStatus
    history: FlowHistory
    clusters: Tuple[Tuple[str, str], ...]
    settings: Tuple[SettingValue, ...] = ()


@dataclass(frozen=True)
class MirrorReport:
    """The whole page. `made_at` is Unix seconds, `state` the folder of the tables. `files`: each file of the
    configuration with its SHA-256 in hexadecimal digits."""

    name: str
    made_at: float
    version: str
    state: str
    trigger: str
    flows: Tuple[FlowReport, ...]
    files: Tuple[Tuple[str, str], ...]
