"""The private names of kafka-python that classes here override or use exist in the pinned release.

Another release may rename any of them: an override would never be called.
"""

from __future__ import annotations

import inspect
import re
from typing import Dict, Tuple

import pytest

from mirror_lib.kafka import wire

TRANSPORT = (
    *("_close", "_closed", "_net", "_protocol", "_read", "_read_from_sock", "_read_task", "_sock", "_sock_send"),
    *("_write_buffer", "_write_to_sock", "_writing"),
)
INHERITED: Dict[type, Tuple[str, ...]] = {
    wire.BrokerConnection: ("_maybe_throttle", "_request_timed_out"),
    wire.BrokerConnections: ("_backoff", "_build_transport", "_conns", "_net"),
    wire.FetchAnswer: ("_struct",),
    wire.FrameProtocol: ("_max_frame_size", "_process_response"),
    wire.KerberosMechanism: ("_client_ctx", "_is_authenticated", "_is_done", "_next_token"),
    wire.ScramMechanism: ("_state",),
    wire.BrokerLoop: ("_current",),
    wire.BulkTransport: TRANSPORT,
    wire.BulkTlsTransport: TRANSPORT,
}


@pytest.mark.parametrize("cls", INHERITED, ids=lambda cls: str(cls.__name__))
def test_private_names_of_extended_classes_exist_in_the_library(cls: type) -> None:
    of_library = [each for each in cls.__mro__ if each.__module__.split(".")[0] == "kafka"]
    source = "".join(map(inspect.getsource, of_library))
    given = {*re.findall(r"def (\w+)", source), *re.findall(r"self\.(\w+)[\w, .]* = ", source)}
    given |= set(re.findall(r"^    (\w+) = ", source, re.MULTILINE))
    assert [name for name in INHERITED[cls] if name not in given] == []
