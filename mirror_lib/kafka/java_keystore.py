"""Reads the private key and certificates of a Java key store (JKS, PKCS12, or another type of the JVM) as PEM text.

Java reads the store itself, in a small JVM that Py4J starts and that ends with the call. Nothing is written to disk.
"""

from __future__ import annotations

import base64
import logging
import os
import sys
import textwrap
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator, List, Optional, Sequence, Tuple

from mirror_lib.config.security import Store
from mirror_lib.errors import ConfigError

log = logging.getLogger(__name__)
# At DEBUG Py4J logs each call with its arguments, among them a store's password.
logging.getLogger("py4j").setLevel(logging.WARNING)

_HINT = "or convert the store to PEM, and set its type to PEM"


@dataclass(frozen=True)
class Opened:
    """The content of a store as PEM text: `trusted` certificates, its only private `key`, and the key's `chain`."""

    trusted: str
    key: Optional[str] = field(default=None, repr=False)
    chain: str = ""


def open_java_stores(stores: Sequence[Tuple[Store, bool]]) -> List[Opened]:
    """Read stores; the second value of a pair says whether to read the private key.

    Raises `ConfigError`, without the password, if a store cannot be opened, or if it does not have exactly one key when
    a key is requested."""
    for store, _ in stores:
        if not Path(str(store.location)).is_file():
            raise ConfigError(f"the {store.kind} store {store.location} does not exist on this machine")
    if not stores:
        return []
    with _gateway() as gateway:
        return [_read(gateway, store, with_key) for store, with_key in stores]


def _read(gateway: Any, store: Store, with_key: bool) -> Opened:
    from py4j.protocol import Py4JError

    java = gateway.jvm.java
    try:
        opened = java.security.KeyStore.getInstance(store.kind)
        stream = java.io.FileInputStream(store.location)
        opened.load(stream, _characters(gateway, store.password))
        stream.close()
        names = sorted(java.util.Collections.list(opened.aliases()))
        keys = [name for name in names if opened.isKeyEntry(name)]
        trusted = [opened.getCertificate(name) for name in names if opened.isCertificateEntry(name) or name in keys]
        if not with_key:
            return Opened(_certificates(gateway, trusted))
        if len(keys) != 1:
            raise ConfigError(f"the {store.kind} store {store.location} holds {len(keys)} private keys instead of one")
        key = opened.getKey(keys[0], _characters(gateway, store.key_password or store.password))
        chain = _certificates(gateway, opened.getCertificateChain(keys[0]))
        key_text = _pem("PRIVATE KEY", _encoded(gateway, "java.security.Key", key))
        return Opened(_certificates(gateway, trusted), key_text, chain)
    except Py4JError as error:
        raise ConfigError(f"the {store.kind} store {store.location} cannot be opened: {_said(error)}") from None


def _characters(gateway: Any, password: Optional[str]) -> Any:
    """A Java `char[]`. Py4J converts every Java string to a Python string, so `String.toCharArray` cannot be called."""
    if password is None:
        return None
    text = gateway.jvm.java.lang.StringBuilder(password)
    characters = gateway.new_array(gateway.jvm.char, text.length())
    text.getChars(0, text.length(), characters, 0)
    return characters


def _certificates(gateway: Any, certificates: Any) -> str:
    encoded = [_encoded(gateway, "java.security.cert.Certificate", each) for each in certificates]
    return "".join(_pem("CERTIFICATE", each) for each in encoded)


def _encoded(gateway: Any, kind: str, item: Any) -> bytes:
    """`getEncoded()` of the public type `kind`: the item's own class is internal to the JVM, and Java 17 forbids calls
    of its methods."""
    java = gateway.jvm.java
    method = java.lang.Class.forName(kind).getMethod("getEncoded", gateway.new_array(java.lang.Class, 0))
    return bytes(method.invoke(item, gateway.new_array(java.lang.Object, 0)))


def _pem(name: str, content: bytes) -> str:
    lines = textwrap.wrap(base64.b64encode(content).decode(), 64)
    return "\n".join([f"-----BEGIN {name}-----", *lines, f"-----END {name}-----", ""])


def _said(error: Any) -> str:
    java = getattr(error, "java_exception", None)
    return str(java.getMessage()) if java is not None else type(error).__name__


@contextmanager
def _gateway() -> Iterator[Any]:
    try:
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
    except ImportError:
        sentence = "a JKS or PKCS12 store is read by Java, through Py4J, which is not installed here"
        raise ConfigError(sentence, f"pip install pyspark, {_HINT}") from None
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else "java"
    try:
        port, token, process = launch_gateway(
            jarpath=py4j_jar(), java_path=command, die_on_exit=True, enable_auth=True, return_proc=True
        )
    except Exception as error:  # Py4J raises many unrelated classes here
        reason = f"{command} could not be started ({type(error).__name__})"
        raise ConfigError(f"a JKS or PKCS12 store is read by Java, but {reason}", f"set JAVA_HOME, {_HINT}") from None
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait()


def py4j_jar() -> str:
    """The jar of the running Py4J version: among Spark's jars, else the one in the Py4J package.

    A YARN container has no SPARK_HOME, but its class path contains Spark's jars.
    """
    import py4j.java_gateway
    from py4j.version import __version__ as version

    spark = [os.environ.get("SPARK_HOME", ""), *(str(Path(folder, "pyspark")) for folder in sys.path)]
    on_class_path = [each[:-2] for each in os.environ.get("CLASSPATH", "").split(os.pathsep) if each.endswith("/*")]
    folders = [*(Path(home, "jars") for home in spark if home), *map(Path, on_class_path), Path("/databricks/jars")]
    found = [str(jar) for folder in folders for jar in sorted(folder.glob(f"*py4j*{version}*.jar"))]
    return found[0] if found else str(py4j.java_gateway.find_jar_path())
