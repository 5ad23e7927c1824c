"""Offsets in, a short text of letters, digits, `-` and `_` out, and back: steps between neighbours as varints. Pure."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import List, Optional, Sequence

from mirror_lib.errors import BatchError
from mirror_lib.log.varint import decode_varint, encode_varint


def packed(offsets: Sequence[int]) -> str:
    """About 3 letters each where they are near one another, as those of a topic's partitions mostly are."""
    steps = [after - before for before, after in zip([0, *offsets], offsets)]
    return urlsafe_b64encode(b"".join(map(encode_varint, steps))).decode("ascii").rstrip("=")


def unpacked(text: str) -> Optional[List[int]]:
    """What was packed; `None` for anything else."""
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        found: List[int] = []
        at = 0
        while at < len(data):
            step, at = decode_varint(data, at)
            found.append(step + (found[-1] if found else 0))
    except (ValueError, IndexError, BatchError):
        return None
    return found if all(offset >= 0 for offset in found) else None
