"""A real broker with a listener for each way to log in, an authorizer, and the key stores to go with it.

And a Kerberos key distribution centre of our own (Apache Kerby), the keytabs it gives, and a broker that asks for them.
"""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Sequence

from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourceType

from mirror_lib.config.security import Store
from mirror_lib.kafka.java_keystore import open_java_stores
from tests.lab.brokers import KafkaBroker, free_ports, java_command, listeners, running
from tests.lab.checkout import CACHE
from tests.lab.java_class import program
from tests.lab.jvm import QUICK

# A password of each kind: a test looks for them where they must not be.
STORE_PASSWORD = "canary-store-8d1f"
KEY_PASSWORD = "canary-key-77c2"
PASSWORDS = {"source": "canary-source-41e9", "target": "canary-target-b03a"}
SECURITY = "org.apache.kafka.common.security"
LOGINS = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-256": "scram.ScramLoginModule",
          "SCRAM-SHA-512": "scram.ScramLoginModule"}  # fmt: skip


@dataclass(frozen=True)
class Stores:
    """Files in `directory`: `trusted.jks`, `own.p12` and so on. `own.jks` has a password for its key next to its
    own."""

    directory: Path

    def make(self) -> None:
        """A certificate authority, a broker of 127.0.0.1, and `CN=mirror`, whom the broker trusts."""
        self.directory.mkdir(parents=True)
        every = self._stored("all.p12")
        key = ["-genkeypair", "-keyalg", "EC", "-validity", "30", "-keypass", STORE_PASSWORD]
        keytool(*key, *every, "-alias", "ca", "-dname", "CN=lab", "-ext", "bc:c")
        signed = ["-signer", "ca", "-signerkeypass", STORE_PASSWORD]
        keytool(*key, *every, *signed, "-alias", "broker", "-dname", "CN=broker", "-ext", "san=ip:127.0.0.1")
        keytool(*key, *every, *signed, "-alias", "mirror", "-dname", "CN=mirror")
        authority = ["-alias", "ca", "-file", str(self.directory / "trusted.pem")]
        keytool("-exportcert", "-rfc", *every, *authority)
        for name, alias, password in (("broker.p12", "broker", STORE_PASSWORD), ("own.p12", "mirror", STORE_PASSWORD),
                                      ("own.jks", "mirror", KEY_PASSWORD)):  # fmt: skip
            self._copy_key(name, alias, password)
        for name in ("trusted.p12", "trusted.jks"):
            keytool("-importcert", "-noprompt", *self._stored(name), *authority)
        (opened,) = open_java_stores([(Store("PKCS12", str(self.directory / "own.p12"), STORE_PASSWORD), True)])
        (self.directory / "own.pem").write_text(f"{opened.key}{opened.chain}")

    def client(self, kind: str, own: bool = False) -> Dict[str, str]:
        """Client properties: `trusted.*` of that kind (JKS, PKCS12, PEM), and `own.*` where asked for."""
        ending = {"PKCS12": "p12"}.get(kind, kind.lower())
        password = {} if kind == "PEM" else {"ssl.truststore.password": STORE_PASSWORD}
        trusted = {"ssl.truststore.type": kind, "ssl.truststore.location": str(self.directory / f"trusted.{ending}")}
        mine = {"ssl.keystore.type": kind, "ssl.keystore.location": str(self.directory / f"own.{ending}")}
        if kind != "PEM":
            mine.update({"ssl.keystore.password": STORE_PASSWORD})
        if kind == "JKS":
            mine.update({"ssl.key.password": KEY_PASSWORD})
        return {**trusted, **password, **(mine if own else {})}

    def broker(self) -> Dict[str, str]:
        """What the broker says and whom it trusts."""
        return {
            "ssl.keystore.location": str(self.directory / "broker.p12"), "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": STORE_PASSWORD, "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.directory / "trusted.pem"),
        }  # fmt: skip

    def renew(self, path: Path) -> None:
        """Another certificate of `CN=mirror`, as a PKCS12 store put at `path` in one step, as secret stores do."""
        new = path.with_suffix(".new")
        self._copy_key(str(new), "ca", STORE_PASSWORD)
        stored = self._stored(str(new))
        self._make_own(stored, "-signer", "ca", "-signerkeypass", STORE_PASSWORD)
        keytool("-delete", *stored, "-alias", "ca")
        new.replace(path)

    def self_signed(self, path: Path) -> str:
        """A certificate of `CN=mirror` as PEM text, with its key in a new PKCS12 store at `path`."""
        stored, exported = self._stored(str(path)), path.with_suffix(".pem")
        self._make_own(stored)
        keytool("-exportcert", "-rfc", *stored, "-alias", "mirror", "-file", str(exported))
        return exported.read_text()

    def _make_own(self, stored: Sequence[str], *signer: str) -> None:
        own = ["-alias", "mirror", "-dname", "CN=mirror", "-keypass", STORE_PASSWORD]
        keytool("-genkeypair", "-keyalg", "EC", *own, *signer, *stored)

    def _stored(self, name: str) -> Sequence[str]:
        kind = "JKS" if name.endswith("jks") else "PKCS12"
        return ["-keystore", str(self.directory / name), "-storetype", kind, "-storepass", STORE_PASSWORD]

    def _copy_key(self, name: str, alias: str, password: str) -> None:
        kind = "JKS" if name.endswith("jks") else "PKCS12"
        keytool(
            "-importkeystore", "-noprompt", "-srckeystore", str(self.directory / "all.p12"),
            "-srcstorepass", STORE_PASSWORD, "-srcalias", alias, "-destkeystore", str(self.directory / name),
            "-deststoretype", kind, "-deststorepass", STORE_PASSWORD, "-destkeypass", password,
        )  # fmt: skip


class SecuredBroker(KafkaBroker):
    """`bootstrap` is an inner listener for the lab, which may do everything there. The others, by `listener`:

    `MTLS` wants a certificate, `SASL` a password over TLS, `CLEAR` one without TLS. Users are `source` and `target`.
    """

    stores: Stores
    ports: Mapping[str, int]

    def listener(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]}"

    def tls(self, kind: str = "PEM") -> Dict[str, str]:
        """Client properties that log in by certificate, as `User:CN=mirror`."""
        stores = self.stores.client(kind, own=True)
        return {"bootstrap.servers": self.listener("MTLS"), "security.protocol": "SSL", **stores}

    def sasl(
        self, user: str, mechanism: str = "SCRAM-SHA-512", kind: str = "PEM", password: str = ""
    ) -> Dict[str, str]:
        """Client properties that log in by password over TLS."""
        given = password or PASSWORDS[user]
        return {
            "bootstrap.servers": self.listener("SASL"), "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{SECURITY}.{LOGINS[mechanism]} required username="{user}" password="{given}";',
            **self.stores.client(kind),
        }  # fmt: skip

    def add_scram_users(self, passwords: Mapping[str, str]) -> None:
        admin = self.admin()
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):  # a request takes a user only once
            given = ScramCredentialInfo(kind, 4096)
            users: List[UserScramCredentialAlteration] = [
                UserScramCredentialUpsertion(user, given, word.encode()) for user, word in passwords.items()
            ]
            for done in admin.alter_user_scram_credentials(users).values():
                done.result(20)

    def acl_admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self.bootstrap)


def keytool(*arguments: str) -> None:
    """Raises with what it said if it fails."""
    command = [str(Path(java_command()).with_name("keytool")), *(f"-J{each}" for each in QUICK), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def acl(user: str, operation: str, kind: str, name: str, prefixed: bool = False) -> ACL:
    """`ALLOW` for a user on a resource, in Kafka's words: `acl("source", "Read", "Topic", "orders")`."""
    pattern = ACLResourcePatternType.PREFIXED if prefixed else ACLResourcePatternType.LITERAL
    resource = ResourcePattern(ResourceType[_enum_name(kind)], name, pattern)
    return ACL(f"User:{user}", "*", ACLOperation[_enum_name(operation)], ACLPermissionType.ALLOW, resource)


def _enum_name(word: str) -> str:
    return "".join(f"_{sign}" if sign.isupper() else sign.upper() for sign in word).lstrip("_")


@contextmanager
def secured_cluster(directory: Path) -> Iterator[SecuredBroker]:
    """One such broker, killed on the way out."""
    stores = Stores(directory / "stores")
    stores.make()
    inner, controller, *outer = free_ports(5)
    ports = dict(zip(("MTLS", "SASL", "CLEAR"), outer))
    properties = _properties(stores, inner, controller, ports)
    broker = SecuredBroker("secured", directory / "secured", inner, controller, properties)
    broker.stores, broker.ports = stores, ports
    with running(broker):
        broker.add_scram_users(PASSWORDS)
        yield broker


def _properties(stores: Stores, inner: int, controller: int, ports: Mapping[str, int]) -> Dict[str, str]:
    outside = zip(ports, ("SSL", "SASL_SSL", "SASL_PLAINTEXT"), [f"127.0.0.1:{port}" for port in ports.values()])
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    plain = f"{SECURITY}.plain.PlainLoginModule required {users};"
    scram = f"{SECURITY}.scram.ScramLoginModule required;"
    logins = {
        f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config": plain if mechanism == "PLAIN" else scram
        for listener in ("sasl", "clear") for mechanism in LOGINS
    }  # fmt: skip
    return {
        **listeners(controller, ("PLAINTEXT", "PLAINTEXT", f"127.0.0.1:{inner}"), *outside),
        "listener.name.mtls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(LOGINS),
        **logins,
        **stores.broker(),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


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
def kerberized(centre: Kdc, directory: Path) -> Iterator[KafkaBroker]:
    """A broker that asks for tickets at the address `outer`, and for nothing at `bootstrap`."""
    inner, controller, outer = free_ports(3)
    both = ("PLAINTEXT", "PLAINTEXT", f"127.0.0.1:{inner}"), ("KRB", "SASL_PLAINTEXT", f"localhost:{outer}")
    properties = {
        **listeners(controller, *both),
        "listener.name.krb.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.krb.gssapi.sasl.jaas.config": line(centre.keytab("kafka/localhost"), "kafka/localhost"),
    }
    broker = KafkaBroker("kerberos", directory / "kerberos", inner, controller, properties)
    broker.java_options = [*broker.java_options, f"-Djava.security.krb5.conf={centre.krb5_conf}"]
    with running(broker):
        broker.directory.joinpath("outer").write_text(f"localhost:{outer}")
        yield broker


def properties(broker: KafkaBroker, jaas: str) -> Dict[str, str]:
    outer = broker.directory.joinpath("outer").read_text()
    return {"bootstrap.servers": outer, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI",
            "sasl.jaas.config": jaas}  # fmt: skip
