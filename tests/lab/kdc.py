"""A Kerberos key distribution centre of our own (Apache Kerby), and the keytabs it gives."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator

from tests.lab.brokers import KafkaBroker, listeners, running
from tests.lab.checkout import CACHE
from tests.lab.java_class import program
from tests.lab.ports import free_ports

REALM = "LAB.EXAMPLE"
JARS = CACHE / "kerby-2.0.3"
MODULE = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"

KRB5_CONF = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
[realms]
  {realm} = {{
    kdc = 127.0.0.1:{port}
  }}
"""


@dataclass(frozen=True)
class Kdc:
    """`krb5_conf` is what clients need to find it."""

    directory: Path

    @property
    def krb5_conf(self) -> Path:
        return self.directory / "client.conf"

    def keytab(self, principal: str) -> Path:
        """The file that proves to be a principal such as `kafka/localhost`."""
        return self.directory / f"{principal.replace('/', '-')}.keytab"


@contextmanager
def kdc(directory: Path, *principals: str) -> Iterator[Kdc]:
    """One such that knows these principals, gone on the way out."""
    directory.mkdir()
    (port,) = free_ports(1)
    centre = Kdc(directory)
    centre.krb5_conf.write_text(KRB5_CONF.format(realm=REALM, port=port))
    with program("KeyCentre", JARS, directory, str(directory), REALM, str(port), *principals):
        yield centre


def line(keytab: Path, principal: str) -> str:
    """`sasl.jaas.config` for the owner of a keytab."""
    return f'{MODULE} keyTab="{keytab}" serviceName="kafka" principal="{principal}";'


@contextmanager
def kerberized(centre: Kdc, directory: Path, name: str) -> Iterator[KafkaBroker]:
    """A broker that asks for tickets at the address `outer`, and for nothing at `bootstrap`."""
    inner, controller, outer = free_ports(3)
    both = ("PLAINTEXT", "PLAINTEXT", f"127.0.0.1:{inner}"), ("KRB", "SASL_PLAINTEXT", f"localhost:{outer}")
    properties = {
        **listeners(controller, *both),
        "listener.name.krb.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.krb.gssapi.sasl.jaas.config": line(centre.keytab("kafka/localhost"), "kafka/localhost"),
    }
    broker = KafkaBroker(name, directory / name, inner, controller, properties)
    broker.java_options = [*broker.java_options, f"-Djava.security.krb5.conf={centre.krb5_conf}"]
    with running(broker):
        broker.directory.joinpath("outer").write_text(f"localhost:{outer}")
        yield broker


def outer(broker: KafkaBroker) -> str:
    """Where it asks for a ticket."""
    return broker.directory.joinpath("outer").read_text()


def properties(broker: KafkaBroker, jaas: str) -> Dict[str, str]:
    return {"bootstrap.servers": outer(broker), "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI",
            "sasl.jaas.config": jaas}  # fmt: skip
