"""A continuous run whose certificate, password, Kerberos ticket or token runs out, and brokers that drop its
connections. GSSAPI and OAUTHBEARER by configuration: one set of properties, for Spark's Java client and for the Python
side."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from contextlib import contextmanager
from ctypes.util import find_library
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, Iterator

import pytest

from mirror_lib.cli import main
from mirror_lib.config.client_options import spark_kafka_options
from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import ClusterError, LoginError
from mirror_lib.kafka.admin import KafkaCluster
from tests.integration.conftest import Names
from tests.lab.brokers import KafkaBroker, end_with_parent
from tests.lab.checkout import ROOT
from tests.lab.flow_lab import Servers, small_config
from tests.lab.group_lab import offsets, read_on
from tests.lab.guarded import grant
from tests.lab.one_flow import OneFlow, until
from tests.lab.secured import PASSWORDS, Kdc, SecuredBroker, acl, kdc, kerberized, line, properties, secured_cluster
from tests.lab.submitted import environment
from tests.lab.token_server import SECRET, Issuer, TokenBroker, issuer, token_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

# Of the tickets.
LIFE_SECONDS = 60


@dataclass
class Scene(OneFlow):
    """A flow with these properties of the source's clients."""

    properties: Dict[str, str] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        servers: Servers = {"source": self.properties, "target": self.target.bootstrap}
        ends = {"state": self.state, "trigger": "1 second"}
        return small_config(self.directory, self.topic, servers, {"topics": [self.topic], **self.settings}, **ends)

    @contextmanager
    def run_as_command(self, **changes: str) -> Iterator[subprocess.Popen[bytes]]:
        """`mirror run` while the block does. It ends with exit code 0 if it still runs then."""
        command = [sys.executable, "-m", "mirror_lib.cli", "run", str(self.config)]
        with (self.directory / "run.log").open("ab") as out:
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

    def copy_more(self, process: subprocess.Popen[bytes]) -> None:
        """Return when the target has some records more."""
        self.fill(200)

        def there() -> bool:
            assert process.poll() is None, self.said()
            return self.all_copied()

        until(there, 300, "the records on the target")

    def said(self) -> str:
        """The end of what the runs printed."""
        return (self.directory / "run.log").read_text(errors="replace")[-3000:]


@pytest.fixture
def topic(topic_name: Names) -> str:
    return topic_name("changing")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SecuredBroker]:
    with secured_cluster(tmp_path / "secured") as started:
        admin = started.acl_admin()
        for user in ("source", "CN=mirror"):
            grant(admin, [acl(user, "All", "Topic", "*"), acl(user, "All", "Cluster", "kafka-cluster")])
        admin.close()
        yield started


def goes_on(scene: Scene, expire: Callable[[], None], **changes: str) -> None:
    """A run copies until `expire` returns; its source restarts, and it copies more."""
    with scene.run_as_command(**changes) as process:
        scene.copy_more(process)
        expire()
        scene.source.stop()
        scene.source.restart()
        scene.copy_more(process)
    assert scene.differences() == []


def test_run_takes_the_renewed_certificate_when_brokers_drop_its_connections(
    broker: SecuredBroker, target_cluster: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    own, trusted = tmp_path / "own.p12", broker.stores.directory / "trusted.pem"
    authority = trusted.read_text()
    broker.stop()
    trusted.write_text(authority + broker.stores.self_signed(own))
    broker.restart()

    def renew() -> None:
        own.replace(tmp_path / "old.p12")
        broker.stores.renew(own)
        trusted.write_text(authority)

    properties = {**broker.tls("PKCS12"), "ssl.keystore.location": str(own)}
    goes_on(Scene(broker, target_cluster, topic, tmp_path, properties=properties), renew)
    with pytest.raises(LoginError):
        old = {**properties, "ssl.keystore.location": str(tmp_path / "old.p12")}
        KafkaCluster(ClusterConfig("source", old), answer_seconds=5)


def test_run_whose_password_was_changed_says_so_and_the_next_start_reads_the_new_one(
    broker: SecuredBroker, target_cluster: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(f"password={PASSWORDS['source']}\n")
    given = broker.sasl("source", password=f"${{file:{secrets}:password}}")
    scene = Scene(broker, target_cluster, topic, tmp_path, properties=given)
    with scene.run_as_command() as process:
        scene.copy_more(process)
        broker.add_scram_users({"source": "another"})
        broker.stop()
        broker.restart()
        scene.fill(200)
        until(lambda: "the broker refused the login" in scene.said(), 300, "the refusal")
    secrets.write_text("password=another\n")
    with scene.run_as_command() as process:
        scene.copy_more(process)
    assert scene.differences() == []


KERBEROS = pytest.mark.skipif(find_library("gssapi_krb5") is None, reason="MIT's Kerberos library is not installed")


@pytest.fixture(scope="module")
def centre(lab_directory: Path) -> Iterator[Kdc]:
    principals = ("kafka/localhost", "mirror", "stranger")
    with kdc(lab_directory / "kdc", *principals) as started, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", str(started.krb5_conf))
        yield started


@pytest.fixture(scope="module")
def kerberos(centre: Kdc, lab_directory: Path) -> Iterator[KafkaBroker]:
    with kerberized(centre, lab_directory) as started:
        yield started


@KERBEROS
def test_run_outlives_its_ticket(
    kerberos: KafkaBroker, centre: Kdc, target_cluster: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    short = tmp_path / "krb5.conf"
    short.write_text(centre.krb5_conf.read_text().replace("[realms]", f"  ticket_lifetime = {LIFE_SECONDS}s\n[realms]"))
    own = properties(kerberos, line(centre.keytab("mirror"), "mirror"))
    scene = Scene(kerberos, target_cluster, topic, tmp_path, properties=own)
    java = f"-Djava.security.krb5.conf={short}"
    goes_on(scene, lambda: time.sleep(LIFE_SECONDS + 5), KRB5_CONFIG=str(short), JAVA_TOOL_OPTIONS=java)


@KERBEROS
def test_a_keytab_serves_spark_and_the_python_side_alike(
    kerberos: KafkaBroker, centre: Kdc, spark: SparkSession
) -> None:
    client = properties(kerberos, line(centre.keytab("mirror"), "mirror"))
    topic = kerberos.create_topic("kerberos")
    kerberos.write(topic, b"one")
    with KafkaCluster(ClusterConfig("A", client)) as cluster:
        assert topic in cluster.topics()
    assert spark._jvm is not None
    spark._jvm.java.lang.System.setProperty("java.security.krb5.conf", str(centre.krb5_conf))
    options = spark_kafka_options(client, spark.version)
    records = spark.read.format("kafka").options(**options).option("subscribe", topic).load()
    assert [row.value for row in records.select("value").collect()] == [b"one"]


@KERBEROS
def test_a_keytab_of_somebody_else_is_told_at_once(kerberos: KafkaBroker, centre: Kdc) -> None:
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    keytab = centre.keytab("stranger")
    with pytest.raises(ClusterError, match=r"cannot log in to the cluster A at .*: Kerberos gave no ticket"):
        KafkaCluster(ClusterConfig("A", properties(kerberos, line(keytab, "absent"))), answer_seconds=20)


# --- OAUTHBEARER: Python's client and Spark's by the same properties, tokens that end, and refusals -------------------

TOKEN_SECONDS = 12.0


@pytest.fixture(scope="module")
def provider(lab_directory: Path) -> Iterator[Issuer]:
    with issuer(lab_directory / "issuer", tls=True) as made:
        made.life_seconds = TOKEN_SECONDS
        made.clients.update(stranger=SECRET)
        yield made


@pytest.fixture(scope="module")
def tokens(lab_directory: Path, provider: Issuer) -> Iterator[TokenBroker]:
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    with token_broker(lab_directory / "tokens", provider) as started:
        yield started


def cluster_id(properties: Dict[str, str]) -> str:
    with KafkaCluster(ClusterConfig("A", properties), answer_seconds=15) as cluster:
        return cluster.cluster_id()


def test_both_clients_log_in_by_the_same_properties(tokens: TokenBroker, spark: SparkSession) -> None:
    client = tokens.client()
    topic = tokens.create_topic("both")
    tokens.write(topic, b"one")
    assert cluster_id(client) == tokens.cluster_id
    before = len(tokens.issuer.requests)
    options = spark_kafka_options(client, spark.version)
    records = spark.read.format("kafka").options(**options).option("subscribe", topic).load()
    assert [row.value for row in records.select("value").collect()] == [b"one"]
    of_java = tokens.issuer.requests[before:]
    assert {(client_id, scope) for client_id, scope, _ in of_java} == {("mirror", "kafka.write")}
    # The properties of Kafka 4.1.
    line = client["sasl.jaas.config"].replace('clientId="mirror" ', "").replace(f'clientSecret="{SECRET}" ', "")
    own = {"client.id": "mirror", "client.secret": SECRET}
    client = {**client, **{f"sasl.oauthbearer.client.credentials.{key}": value for key, value in own.items()}}
    client["sasl.jaas.config"] = line
    assert cluster_id(client) == tokens.cluster_id
    options = {**spark_kafka_options(client, spark.version), "subscribe": tokens.create_topic("of-4-1")}
    assert spark.read.format("kafka").options(**options).load().count() == 0


def test_a_token_for_another_audience_is_the_brokers_refusal(tokens: TokenBroker) -> None:
    tokens.issuer.audience = "another"
    try:
        with pytest.raises(LoginError) as caught:
            cluster_id(tokens.client(client_id="stranger"))
    finally:
        tokens.issuer.audience = "kafka"
    said = str(caught.value)
    assert SECRET not in said and said.startswith("cannot log in to the cluster A at ")
    assert "the broker refused the token: " in said and "check the token's audience" in said
    # The refused token is not used again: its life is not waited out.
    assert cluster_id(tokens.client(client_id="stranger")) == tokens.cluster_id


def test_a_whole_flow_by_token_is_exact_and_goes_on_past_the_tokens_life(
    tokens: TokenBroker, target_cluster: KafkaBroker, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    group, own = f"{topic}-readers", tokens.client(client_id="flow")
    tokens.issuer.clients["flow"] = SECRET
    scene = Scene(tokens, target_cluster, topic, tmp_path, properties=own)
    scene.settings = {"groups": [group], "sync.group.offsets.enabled": "true"}
    for round_ in (1, 2):
        scene.fill(1000)
        read_on(tokens, group, [topic], 1000)
        for words in (["run", "--once"], ["verify"]):
            assert main([*words, str(scene.config)]) == 0
        assert scene.differences() == []
        moved, remote = offsets(target_cluster, group, scene.remote_topic, 3), scene.remote()
        assert sum(at >= moved.get(number, 0) for number, log in remote.items() for at in log) == 2000 * round_
        time.sleep(TOKEN_SECONDS)
    assert len({token for client_id, _, token in tokens.issuer.requests if client_id == "flow"}) > 2
