"""Integers in, Kafka's variable-length bytes out, and back: zig-zag, seven bits a byte, lowest first. Pure."""

from __future__ import annotations

from typing import Tuple, Union

from mirror_lib.errors import BatchError

_BITS64 = 0xFFFFFFFFFFFFFFFF
_SIGN64 = 1 << 63


# 14 bits as the end of a varint, and as two bytes that others follow.
_ENDED = tuple(bytes((raw,)) if raw < 0x80 else bytes((raw & 0x7F | 0x80, raw >> 7)) for raw in range(1 << 14))
_UNENDED = tuple(bytes((raw & 0x7F | 0x80, raw >> 7 | 0x80)) for raw in range(1 << 14))


def wrap64(value: int) -> int:
    """`value` as Java's long holds it: Kafka adds and subtracts timestamps modulo 2^64."""
    return ((value + _SIGN64) & _BITS64) - _SIGN64


def encode_varint(value: int) -> bytes:
    """The 1 to 10 bytes of a signed integer of up to 64 bits."""
    rest = (value << 1 ^ value >> 63) & _BITS64
    if rest < 1 << 28:
        return _ENDED[rest] if rest < 1 << 14 else _UNENDED[rest & 0x3FFF] + _ENDED[rest >> 14]
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


# Nearly every number in a record is a small one; looking it up is three times as fast as making it. By index, also a
# negative one: numbers from -SMALL to SMALL - 1.
SMALL = 1 << 13
SMALL_VARINTS = tuple(encode_varint(value) for value in (*range(SMALL), *range(-SMALL, 0)))
# What one or two bytes of a varint stand for, by their 7 or 14 bits.
SIGNED = tuple(raw >> 1 ^ -(raw & 1) for raw in range(1 << 14))
