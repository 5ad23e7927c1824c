"""Makes the tokens of SASL/GSSAPI for a `KerberosLogin` and a broker's host, with the system's MIT library.

The library is called through `ctypes`: no Python package has a Linux binary for it, and compiling one needs headers.
"""

from __future__ import annotations

import ctypes
import weakref
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from ctypes.util import find_library
from functools import lru_cache
from itertools import chain
from typing import Any, Dict, NamedTuple, Optional

from mirror_lib.config.security import KerberosLogin
from mirror_lib.errors import ConfigError

_LIBRARY = "libgssapi_krb5.so.2"
# Object identifiers (RFC 1964, RFC 2743), and numbers of RFC 2744.
_KERBEROS = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02"
_PRINCIPAL = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01"
_SERVICE_AT_HOST = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x01\x04"
_INITIATE, _FOREVER = 1, 0xFFFFFFFF
_MUTUAL, _IN_ORDER, _INTEGRITY = 2, 8, 32
_CONTINUE, _ERRORS = 1, 0xFFFF0000
_OF_GSSAPI, _OF_MECHANISM = 1, 2


class KerberosError(Exception):
    """An error of the Kerberos library, with the library's message."""


class _Buffer(ctypes.Structure):
    _fields_ = [("length", c_size_t), ("value", c_void_p)]


class _Oid(ctypes.Structure):
    _fields_ = [("length", c_uint32), ("elements", c_char_p)]


class _OidSet(ctypes.Structure):
    _fields_ = [("count", c_size_t), ("elements", POINTER(_Oid))]


class _StoreEntry(ctypes.Structure):
    _fields_ = [("key", c_char_p), ("value", c_char_p)]


class _Store(ctypes.Structure):
    _fields_ = [("count", c_uint32), ("elements", POINTER(_StoreEntry))]


class _Message(NamedTuple):
    message: bytes


class SecurityContext:
    """A security context of the initiator, with the methods that kafka-python calls."""

    def __init__(self, service: str, login: KerberosLogin) -> None:
        self.complete = False
        self._service = _name(service, _SERVICE_AT_HOST)
        self._tickets = _tickets(login)
        self._context = _Handle("gss_delete_sec_context", None)

    def step(self, token: Optional[bytes]) -> bytes:
        """The next token for the broker; `token` is the broker's last token, None at the start."""
        answer = _Buffer()
        major = _call(
            "gss_init_sec_context", self._tickets.value, byref(self._context.value), self._service.value,
            byref(_oid(_KERBEROS)), c_uint32(_MUTUAL | _IN_ORDER | _INTEGRITY), c_uint32(0), None,
            byref(_buffer(token)) if token else None, None, byref(answer), None, None,
        )  # fmt: skip
        self.complete = not major & _CONTINUE
        return _taken(answer)

    def wrap(self, message: bytes, encrypt: bool) -> _Message:
        answer = _Buffer()
        encrypted, text = c_int(encrypt), _buffer(message)
        _call("gss_wrap", self._context.value, encrypted, c_uint32(0), byref(text), None, byref(answer))
        return _Message(_taken(answer))

    def unwrap(self, message: bytes) -> _Message:
        answer = _Buffer()
        _call("gss_unwrap", self._context.value, byref(_buffer(message)), byref(answer), None, None)
        return _Message(_taken(answer))


class _Handle:
    """A pointer of the library; the library's function `release` frees it when it is no longer referenced."""

    def __init__(self, release: str, *more: None) -> None:
        self.value = c_void_p()
        weakref.finalize(self, _give_back, release, self.value, *more)


def _give_back(release: str, value: c_void_p, *more: None) -> None:
    if value:
        getattr(library(), release)(byref(c_uint32()), byref(value), *more)


def _name(text: str, kind: bytes) -> _Handle:
    name = _Handle("gss_release_name")
    _call("gss_import_name", byref(_buffer(text.encode())), byref(_oid(kind)), byref(name.value))
    return name


def _tickets(login: KerberosLogin) -> _Handle:
    principal = _name(login.principal, _PRINCIPAL) if login.principal else None
    store: Dict[str, str] = {}
    if login.keytab is not None:
        # A cache of this process, renewed from the keytab when it expires. Two keytabs may have the same principal.
        store = {"client_keytab": login.keytab, "ccache": f"MEMORY:mirror-{login.principal}-{login.keytab}"}
    elif login.ticket_cache is not None:
        store = {"ccache": f"FILE:{login.ticket_cache}"}
    entries = (_StoreEntry * len(store))(*(_StoreEntry(key.encode(), value.encode()) for key, value in store.items()))
    tickets = _Handle("gss_release_cred")
    _call(
        "gss_acquire_cred_from", principal.value if principal else None, c_uint32(_FOREVER),
        byref(_OidSet(1, ctypes.pointer(_oid(_KERBEROS)))), c_int(_INITIATE),
        byref(_Store(len(store), entries)) if store else None, byref(tickets.value), None, None,
    )  # fmt: skip
    return tickets


def _call(function: str, *arguments: Any) -> int:
    """Call a function of the library and return its major status. Raises `KerberosError`."""
    minor = c_uint32()
    major = int(getattr(library(), function)(byref(minor), *arguments))
    if major & _ERRORS:
        said = [_status(major, _OF_GSSAPI), *([_status(minor.value, _OF_MECHANISM)] if minor.value else [])]
        raise KerberosError(": ".join(said))
    return major


def _status(status: int, kind: int) -> str:
    text = _Buffer()
    library().gss_display_status(
        byref(c_uint32()), c_uint32(status), c_int(kind), byref(_oid(_KERBEROS)), byref(c_uint32()), byref(text)
    )
    return " ".join(_taken(text).decode(errors="replace").split())


def _taken(buffer: _Buffer) -> bytes:
    content = ctypes.string_at(buffer.value, buffer.length) if buffer.value else b""
    library().gss_release_buffer(byref(c_uint32()), byref(buffer))
    return content


def _buffer(content: bytes) -> _Buffer:
    return _Buffer(len(content), ctypes.cast(c_char_p(content), c_void_p))


def _oid(content: bytes) -> _Oid:
    return _Oid(len(content), content)


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """MIT's Kerberos library. Raises `ConfigError` if this machine has none."""
    # `find_library` starts other programs, so it is used only if the usual name fails.
    for name in chain([_LIBRARY], map(find_library, ["gssapi_krb5"])):
        try:
            found = ctypes.CDLL(name) if name else None
        except OSError:
            continue
        if found is not None and hasattr(found, "gss_acquire_cred_from"):
            return found
    raise ConfigError(
        f"GSSAPI needs MIT's Kerberos library ({_LIBRARY}) on every machine", "install libgssapi-krb5-2 (or krb5-libs)"
    )
