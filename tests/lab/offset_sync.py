"""The bytes of MirrorMaker 2's offset syncs, which only MirrorMaker writes."""

from __future__ import annotations

import struct
from typing import Tuple

from mirror_lib.groups.mm2_format import PointSync


def sync_bytes(sync: PointSync) -> Tuple[bytes, bytes]:
    """Key and value of the record; neither has a version."""
    topic = sync.topic.encode("utf-8")
    key = struct.pack(f">h{len(topic)}si", len(topic), topic, sync.partition)
    return key, struct.pack(">qq", sync.upstream_offset, sync.downstream_offset)
