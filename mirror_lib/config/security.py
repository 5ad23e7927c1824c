"""Java's `ssl.*` properties in, what a TLS connection of Python needs out: frozen, without a file opened yet. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Mapping, Optional, Tuple

from mirror_lib.errors import ConfigError

PEM = "PEM"
_PROTOCOLS = ("TLSv1.2", "TLSv1.3")
# One block of PEM text. Kafka takes it on one line too, with blanks where there were line ends.
_BLOCK = re.compile(r"-+BEGIN ([A-Z0-9 ]+?)-+\s+([A-Za-z0-9+/=\s]+?)\s*-+END \1-+")
_SUITE = re.compile(r"TLS_(?:(ECDHE|DHE)_)?(RSA|ECDSA)_WITH_(AES_128_GCM|AES_256_GCM|CHACHA20_POLY1305)(_SHA\d+)")


@dataclass(frozen=True)
class Store:
    """A key store or trust store. `kind` is Java's word (JKS, PKCS12, PEM, …).

    It lies at `location`, or is PEM text: `certificates`, and `key` in a key store.
    """

    kind: str
    location: Optional[str] = None
    password: Optional[str] = field(default=None, repr=False)
    key_password: Optional[str] = field(default=None, repr=False)
    certificates: Optional[str] = field(default=None, repr=False)
    key: Optional[str] = field(default=None, repr=False)


@dataclass(frozen=True)
class TlsSettings:
    """What to trust (`None`: what the system trusts), who we are (`None`: nobody), and what is spoken.

    `ciphers` are OpenSSL's names of TLS 1.2 suites; empty for the default ones.
    """

    trusted: Optional[Store]
    own: Optional[Store]
    check_hostname: bool
    protocols: Tuple[str, ...] = _PROTOCOLS
    ciphers: Tuple[str, ...] = ()


def tls_settings(props: Mapping[str, str]) -> TlsSettings:
    """The settings in Java client properties. Raises `ConfigError` where Java's client would refuse them too, and for
    an SSL engine of one's own, which only Java could load."""
    algorithm = props.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", ""):
        raise ConfigError("ssl.endpoint.identification.algorithm must be https, or empty to skip the check")
    if props.get("ssl.engine.factory.class"):
        raise ConfigError("ssl.engine.factory.class names a Java class, which the Python side cannot use")
    return TlsSettings(
        trusted=_trusted(props),
        own=_own(props),
        check_hostname=algorithm == "https",
        protocols=_protocols(props),
        ciphers=_ciphers(props.get("ssl.cipher.suites", "")),
    )


def pem_blocks(text: str, kind: str) -> str:
    """Every block of PEM text whose name ends in `kind` (`CERTIFICATE`, `PRIVATE KEY`), in lines as OpenSSL wants them;
    `""` where there is none."""
    found = []
    for match in _BLOCK.finditer(text):
        name, content = match.group(1), re.sub(r"\s+", "", match.group(2))
        if name.endswith(kind):
            lines = [content[at : at + 64] for at in range(0, len(content), 64)]
            found.append("\n".join([f"-----BEGIN {name}-----", *lines, f"-----END {name}-----", ""]))
    return "".join(found)


def _trusted(props: Mapping[str, str]) -> Optional[Store]:
    certificates = props.get("ssl.truststore.certificates")
    store = _store(props, "truststore", certificates is not None, "ssl.truststore.certificates")
    if store is None or certificates is None:
        return store
    return Store(PEM, certificates=_text(certificates, "CERTIFICATE", "ssl.truststore.certificates"))


def _own(props: Mapping[str, str]) -> Optional[Store]:
    key, chain = props.get("ssl.keystore.key"), props.get("ssl.keystore.certificate.chain")
    store = _store(props, "keystore", key is not None or chain is not None, "ssl.keystore.key")
    if store is None or store.location is not None:
        return store
    if key is None or chain is None:
        raise ConfigError("ssl.keystore.key and ssl.keystore.certificate.chain are needed together")
    return Store(
        PEM,
        key_password=props.get("ssl.key.password") or None,
        certificates=_text(chain, "CERTIFICATE", "ssl.keystore.certificate.chain"),
        key=_text(key, "PRIVATE KEY", "ssl.keystore.key"),
    )


def _store(props: Mapping[str, str], store: str, in_place: bool, key: str) -> Optional[Store]:
    """The store at `ssl.<store>.location`, an empty one where PEM text stands in place; Java's rules about both."""
    location, password = props.get(f"ssl.{store}.location") or None, props.get(f"ssl.{store}.password") or None
    kind = props.get(f"ssl.{store}.type", "JKS").upper()
    if in_place and location:
        raise ConfigError(f"{key} and ssl.{store}.location exclude each other")
    if in_place and kind != PEM:
        raise ConfigError(f"{key} needs ssl.{store}.type = PEM")
    if not in_place and not location:
        return None
    if kind == PEM and password:
        word = "; the private key's password is ssl.key.password" if store == "keystore" else ""
        raise ConfigError(f"ssl.{store}.password cannot be set for a PEM store{word}")
    key_password = (props.get("ssl.key.password") or None) if store == "keystore" else None
    return Store(kind, location, password, key_password)


def _text(text: str, kind: str, key: str) -> str:
    blocks = pem_blocks(text, kind)
    if not blocks:
        raise ConfigError(f"{key} must hold PEM text: -----BEGIN {kind}----- and so on")
    return blocks


def _protocols(props: Mapping[str, str]) -> Tuple[str, ...]:
    enabled = [name.strip() for name in props.get("ssl.enabled.protocols", "").split(",") if name.strip()]
    highest = props.get("ssl.protocol", "TLSv1.3").strip()
    names = [name for name in _PROTOCOLS if not enabled or name in enabled]
    if highest == "TLSv1.2":
        names = [name for name in names if name == highest]
    elif highest not in ("TLSv1.3", "TLS"):
        names = []
    if not names:
        raise ConfigError("ssl.protocol and ssl.enabled.protocols must allow TLSv1.2 or TLSv1.3; older ones are unsafe")
    return tuple(names)


def _ciphers(suites: str) -> Tuple[str, ...]:
    """OpenSSL's names of the TLS 1.2 suites among `suites`; Python has no choice of those of TLS 1.3."""
    found = []
    for suite in (name.strip() for name in suites.split(",") if name.strip()):
        match = _SUITE.fullmatch(suite)
        if match is not None:
            exchange, signature, cipher, digest = match.groups()
            named = cipher.replace("AES_", "AES").replace("_", "-")
            tail = "" if cipher.startswith("CHACHA") else digest.replace("_", "-")
            found.append("-".join(filter(None, [exchange, signature if exchange else "", named])) + tail)
        elif "_WITH_" in suite or not suite.startswith("TLS_"):
            raise ConfigError("ssl.cipher.suites: only the GCM and CHACHA20 suites can be used on the Python side")
    return tuple(found)
