"""A continuous run whose certificate, password or Kerberos ticket runs out, and brokers that drop its connections."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from ctypes.util import find_library
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterator

import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.integration.conftest import Names
from tests.lab.brokers import KafkaBroker, end_with_parent
from tests.lab.checkout import ROOT
from tests.lab.flow_lab import Servers, small_config
from tests.lab.kdc import kdc, kerberized, line, properties
from tests.lab.one_flow import until
from tests.lab.readers import differences, read_topic
from tests.lab.rights_page import grant
from tests.lab.secured import PASSWORDS, SecuredBroker, acl, secured_cluster
from tests.lab.submitted import environment

pytestmark = pytest.mark.long

# Of the certificate and the tickets: enough to start a run in, also on a busy machine.
LIFE_SECONDS = 60
EACH = 500


@dataclass
class Scene:
    """A flow from `source` to `target`, with these properties of the source's clients."""

    source: KafkaBroker
    target: KafkaBroker
    topic: str
    folder: Path
    properties: Dict[str, str]
    written: int = 0

    @property
    def config(self) -> Path:
        """The configuration file."""
        servers: Servers = {"A": self.properties, "B": self.target.bootstrap}
        settings, ends = {"topics": [self.topic]}, {"state": self.folder / "state", "trigger": "1 second"}
        return small_config(self.folder, self.topic, servers, settings, flows=["A->B"], **ends)

    @property
    def log(self) -> Path:
        """All that the runs printed."""
        return self.folder / "run.log"

    def write(self) -> None:
        """As many records more."""
        self.source.write(self.topic, *(b"%d" % (self.written + number) for number in range(EACH)))
        self.written += EACH

    @contextmanager
    def running(self, **changes: str) -> Iterator[subprocess.Popen[bytes]]:
        """`mirror run` while the block does. It ends with exit code 0 if it still runs then."""
        command = [sys.executable, "-m", "mirror_lib.cli", "run", str(self.config)]
        with self.log.open("ab") as out:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment(**changes), stdout=out, stderr=out, preexec_fn=end_with_parent
            )
        try:
            yield process
            if process.poll() is None:
                process.terminate()
                assert process.wait(90) == 0, self.said()
        finally:
            process.kill()
            process.wait()

    def copied(self, process: subprocess.Popen[bytes]) -> None:
        """Return when the target has everything."""

        def there() -> bool:
            assert process.poll() is None, self.said()
            return len(read_topic(self.target, f"A.{self.topic}").get(0, {})) >= self.written

        until(there, 120, "the records on the target")

    def exact(self) -> bool:
        """Whether the target has each record once, in order."""
        return differences(read_topic(self.source, self.topic), read_topic(self.target, f"A.{self.topic}")) == []

    def said(self) -> str:
        """The end of what the runs printed."""
        return self.log.read_text(errors="replace")[-3000:]


@pytest.fixture
def topic(topic_name: Names) -> str:
    return topic_name("changing")


@pytest.fixture
def broker(tmp_path: Path, topic: str) -> Iterator[SecuredBroker]:
    with secured_cluster(tmp_path / "secured") as started:
        started.create_topic(topic)
        admin = started.acl_admin()
        for user in ("source", "CN=mirror"):
            grant(admin, [acl(user, "All", "Topic", "*"), acl(user, "All", "Cluster", "kafka-cluster")])
        admin.close()
        yield started


def goes_on(scene: Scene, expire: Callable[[], None], **changes: str) -> None:
    """A run copies until `expire` returns; its source restarts, and it copies more."""
    scene.write()
    with scene.running(**changes) as process:
        scene.copied(process)
        expire()
        scene.source.stop()
        scene.source.restart()
        scene.write()
        scene.copied(process)
    assert scene.exact()


def test_run_takes_the_renewed_certificate_when_brokers_drop_its_connections(
    broker: SecuredBroker, target_cluster: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    own = tmp_path / "own.p12"
    broker.stores.renew(own, f"-1d+{LIFE_SECONDS}S")
    expires_at = time.monotonic() + LIFE_SECONDS
    properties = {**broker.tls("PKCS12"), "ssl.keystore.location": str(own)}

    def renew() -> None:
        assert time.monotonic() < expires_at, "the first certificate had run out before the copy began"
        broker.stores.renew(own, "-1H")
        time.sleep(max(0.0, expires_at - time.monotonic()) + 2)

    goes_on(Scene(broker, target_cluster, topic, tmp_path, properties), renew)


def test_run_whose_password_was_changed_says_so_and_the_next_start_reads_the_new_one(
    broker: SecuredBroker, target_cluster: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(f"password={PASSWORDS['source']}\n")
    given = broker.sasl("source", password=f"${{file:{secrets}:password}}")
    scene = Scene(broker, target_cluster, topic, tmp_path, given)
    scene.write()
    with scene.running() as process:
        scene.copied(process)
        change_password(broker, "source", "another")
        broker.stop()
        broker.restart()
        scene.write()
        until(lambda: "the broker refused the login" in scene.said(), 120, "the refusal")
    secrets.write_text("password=another\n")
    with scene.running() as process:
        scene.copied(process)
    assert scene.exact()


def change_password(broker: SecuredBroker, user: str, password: str) -> None:
    """For the one mechanism that the flow uses."""
    admin = broker.admin()
    given = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    (done,) = admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion(user, given, password.encode())]
    ).values()
    done.result(20)


@pytest.mark.skipif(find_library("gssapi_krb5") is None, reason="MIT's Kerberos library is not installed")
def test_run_outlives_its_ticket(target_cluster: KafkaBroker, topic: str, tmp_path: Path) -> None:
    with kdc(tmp_path / "kdc", "kafka/localhost", "mirror") as centre, kerberized(centre, tmp_path, "krb") as source:
        source.create_topic(topic)
        short = tmp_path / "krb5.conf"
        short.write_text(
            centre.krb5_conf.read_text().replace("[realms]", f"  ticket_lifetime = {LIFE_SECONDS}s\n[realms]")
        )
        own = properties(source, line(centre.keytab("mirror"), "mirror"))
        java = f"-Djava.security.krb5.conf={short}"
        scene = Scene(source, target_cluster, topic, tmp_path, own)
        goes_on(scene, lambda: time.sleep(LIFE_SECONDS + 5), KRB5_CONFIG=str(short), JAVA_TOOL_OPTIONS=java)
