"""Turns options of `config.clients` into kafka-python's own: stores opened, a Kerberos or token login made ready.

Each process opens store files itself, as Java's client does, so no private key out of one travels with a Spark task.
"""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple, Union

from mirror_lib.config.jaas import KerberosLogin
from mirror_lib.config.security import PEM, Store, TlsSettings, pem_blocks
from mirror_lib.config.tokens import MskLogin, OauthLogin
from mirror_lib.errors import ConfigError
from mirror_lib.kafka.java_keystore import Opened, open_java_stores
from mirror_lib.kafka.kerberos import library as kerberos_library
from mirror_lib.kafka.tokens import TokenSource, msk_source, oauth_source

log = logging.getLogger(__name__)

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
# Java believes any certificate in its trust store, OpenSSL by itself only one that signed itself. The flag has no name
# before Python 3.10.
_PARTIAL_CHAIN = 0x80000


def ready_options(options: Mapping[str, Any]) -> Dict[str, Any]:
    """The options with `tls` turned into an `ssl_context`, and a token login into the process's source of its tokens.

    Raises `ConfigError` where a store cannot be opened, or the library of a login is missing.
    """
    ready = dict(options)
    settings: Optional[TlsSettings] = ready.pop("tls", None)
    if settings is not None:
        ready["ssl_context"] = _context(settings, _ages(settings))
    if isinstance(ready.get("sasl_kerberos_name"), KerberosLogin):
        kerberos_library()
    login = ready.get("sasl_oauth_token_provider")
    if isinstance(login, (OauthLogin, MskLogin)):
        ready["sasl_oauth_token_provider"] = _token_source(login)
    return ready


def _token_source(login: Union[OauthLogin, MskLogin]) -> TokenSource:
    if isinstance(login, MskLogin):
        return msk_source(login)
    settings = login.tls
    if settings is None:
        return oauth_source(login, None)
    _context(settings, _ages(settings))  # a store that cannot be opened is reported here, not at a login
    return oauth_source(login, lambda: _context(settings, _ages(settings)))


def _ages(settings: TlsSettings) -> Tuple[float, ...]:
    """When the store files were last written: one that was renewed is opened again."""
    paths = [Path(each.location) for each in (settings.trusted, settings.own) if each is not None and each.location]
    return tuple(path.stat().st_mtime for path in paths if path.exists())


@lru_cache(maxsize=16)
def _context(settings: TlsSettings, ages: Tuple[float, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.check_hostname
    context.minimum_version = _VERSIONS[settings.protocols[0]]
    context.maximum_version = _VERSIONS[settings.protocols[-1]]
    context.verify_flags |= _PARTIAL_CHAIN
    if settings.ciphers:
        try:
            context.set_ciphers(":".join(settings.ciphers))
        except ssl.SSLError:
            raise ConfigError("ssl.cipher.suites: this machine's OpenSSL knows none of them") from None
    opened = _opened([(each, each is settings.own) for each in (settings.trusted, settings.own) if each is not None])
    if settings.trusted is None:
        context.load_default_certs()
    else:
        _trust(context, settings.trusted, opened[settings.trusted, False])
    if settings.own is not None:
        _prove(context, settings.own, opened[settings.own, True])
    return context


def _trust(context: ssl.SSLContext, store: Store, opened: Opened) -> None:
    try:
        context.load_verify_locations(cadata=opened.trusted)
    except ssl.SSLError as error:
        raise ConfigError(f"the trust store {_named(store)} cannot be used: {error.reason}") from None
    except ValueError:  # Python's word for no text at all
        raise ConfigError(f"the trust store {_named(store)} holds no certificate (is its password right?)") from None


def _prove(context: ssl.SSLContext, store: Store, opened: Opened) -> None:
    if opened.key is None or not opened.chain:
        raise ConfigError(f"the key store {_named(store)} holds no private key with its certificate")
    # A key out of a Java store is in clear by now. A password must be given in any case: OpenSSL would ask for one.
    password = (store.key_password or "") if store.kind == PEM else ""
    try:
        with _path_to(opened.key + opened.chain) as path:
            context.load_cert_chain(path, password=lambda: password)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or "its password is wrong or missing"
        raise ConfigError(f"the key store {_named(store)} cannot be used: {reason}", "check ssl.key.password") from None


def _opened(stores: Sequence[Tuple[Store, bool]]) -> Mapping[Tuple[Store, bool], Opened]:
    """Each store, with its key where the second of the pair says so. Java starts once for all that are its own."""
    in_java = [(store, with_key) for store, with_key in stores if store.kind != PEM]
    in_pem = [(store, with_key) for store, with_key in stores if store.kind == PEM]
    return {**dict(zip(in_java, open_java_stores(in_java))), **{each: _open_pem(*each) for each in in_pem}}


def _open_pem(store: Store, with_key: bool) -> Opened:
    certificates, key = store.certificates, store.key
    if store.location is not None:
        try:
            certificates = key = Path(store.location).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise ConfigError(f"the PEM store {store.location} cannot be read: {error.strerror}") from None
    chain = pem_blocks(certificates or "", "CERTIFICATE")
    return Opened(chain, (pem_blocks(key or "", "PRIVATE KEY") or None) if with_key else None, chain)


def _named(store: Store) -> str:
    return store.location or "in the configuration file"


@contextmanager
def _path_to(text: str) -> Iterator[str]:
    """A path that OpenSSL, which takes keys from files only, can read `text` from. It is in memory where the system has
    such files; else one that nobody else may read, gone after the block."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("mirror")
        try:
            os.write(number, text.encode())
            yield f"/proc/self/fd/{number}"
        finally:
            os.close(number)
        return
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(text)
        file.flush()
        yield file.name
