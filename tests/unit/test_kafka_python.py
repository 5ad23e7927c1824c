"""The private names of kafka-python that classes here extend: each must exist, and a new use must be listed here.

Another release may rename any of them, so setup.py pins one. A change of the pin shows here what may have broken.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from importlib.metadata import requires, version
from typing import Dict, Iterable, List, Set

import pytest

from mirror_lib.kafka.security import TokenSource
from mirror_lib.kafka.wire import (
    BrokerConnection,
    BrokerConnections,
    BrokerLoop,
    BulkTlsTransport,
    BulkTransport,
    FetchAnswer,
    FetchRequestOfViews,
    FrameProtocol,
    KerberosMechanism,
    ScramMechanism,
    Views,
)

TRANSPORT = (
    *("_close", "_closed", "_net", "_protocol", "_read", "_read_from_sock", "_read_task", "_sock", "_sock_send"),
    *("_write_buffer", "_write_to_sock", "_writing"),
)
# What classes that extend the library's use or override of theirs.
INHERITED: Dict[type, Iterable[str]] = {
    BrokerConnection: ("_maybe_throttle", "_request_timed_out"),
    BrokerConnections: ("_backoff", "_build_transport", "_conns", "_net"),
    FetchAnswer: ("_struct",),
    FetchRequestOfViews: (),
    FrameProtocol: ("_max_frame_size", "_process_response"),
    KerberosMechanism: ("_client_ctx", "_is_authenticated", "_is_done", "_next_token"),
    ScramMechanism: ("_state",),
    TokenSource: (),
    Views: (),
    BrokerLoop: ("_current",),
    BulkTransport: TRANSPORT,
    BulkTlsTransport: TRANSPORT,
}
PRIVATE = re.compile(r"_[a-z]\w*")


def private_names(cls: type, assigned_only: bool = False) -> Set[str]:
    """Private names in the source of one class: its methods, what it assigns, and what it reads of itself."""
    found: List[str] = []
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(cls)))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.append(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            found += [] if assigned_only and isinstance(node.ctx, ast.Load) else [node.attr]
    return {name for name in found if PRIVATE.fullmatch(name)}


def ancestry(cls: type, package: str) -> List[type]:
    return [each for each in cls.__mro__ if each.__module__.split(".")[0] == package]


def names_of_library(cls: type) -> Set[str]:
    return {name for each in ancestry(cls, "kafka") for name in private_names(each, assigned_only=True)}


@pytest.mark.parametrize("cls", INHERITED, ids=lambda cls: str(cls.__name__))
def test_private_names_of_extended_classes_exist_in_the_library(cls: type) -> None:
    ours = {name for each in ancestry(cls, "mirror_lib") for name in private_names(each)}
    assert ours & names_of_library(cls) == set(INHERITED[cls])
    own = {name for each in ancestry(cls, "mirror_lib") for name in private_names(each, assigned_only=True)}
    read = ours - own - names_of_library(cls)
    assert not read, f"{cls.__name__} reads what neither it nor the library defines: {sorted(read)}"


def test_the_library_is_the_pinned_release() -> None:
    wanted = [line for line in requires("spark-kafka-mirror") or [] if line.startswith("kafka-python")]
    assert [each.replace(" ", "") for each in wanted] == [f"kafka-python=={version('kafka-python')}"]
