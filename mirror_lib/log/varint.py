"""Integers in, Kafka's variable-length bytes out, and back: zig-zag, seven bits a byte, lowest first. Pure."""

from __future__ import annotations

from typing import Tuple, Union

from mirror_lib.errors import BatchError

_BITS64 = 0xFFFFFFFFFFFFFFFF
_SIGN64 = 1 << 63


def wrap64(value: int) -> int:
    """`value` as Java's long holds it: Kafka adds and subtracts timestamps modulo 2^64."""
    return ((value + _SIGN64) & _BITS64) - _SIGN64


def encode_varint(value: int) -> bytes:
    """The 1 to 10 bytes of a signed integer of up to 64 bits."""
    rest = (value << 1 ^ value >> 63) & _BITS64
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def decode_varint(data: Union[bytes, bytearray, memoryview], at: int) -> Tuple[int, int]:
    """The signed integer that starts at `at`, and where the next thing starts. IndexError past the end of `data`."""
    raw = shift = 0
    while True:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw >> 1 ^ -(raw & 1), at
        shift += 7
        if shift > 63:
            raise BatchError(f"a record is corrupt: the integer that ends at byte {at} has no end")


# Nearly every number in a record is one of these; looking it up is three times as fast as making it.
SMALL_VARINTS = tuple(encode_varint(value) for value in range(1 << 14))
