"""Real brokers with TLS, SASL and ACLs: what gets in, what a refusal says, and a whole mirror with exactly the rights
of docs/deploy/permissions.md, stores of all kinds, and secrets that stay secret."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, Sequence, Set

import pytest

from mirror_lib.config.loader import load
from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import ClusterError, ConfigError, LoginError
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.admin_client import log_client
from mirror_lib.kafka.fencing import Lane, fence
from mirror_lib.spark.session import open_session
from mirror_lib.topics.remote_configs import NO_LIMIT
from tests.lab.brokers import end_with_parent
from tests.lab.checkout import ROOT
from tests.lab.flow_lab import Servers, small_config
from tests.lab.group_lab import read_on
from tests.lab.guarded import grant, granted, rights
from tests.lab.jvm import quick_spark
from tests.lab.meanwhile import meanwhile
from tests.lab.one_flow import until
from tests.lab.readers import read_topic
from tests.lab.secured import KEY_PASSWORD, PASSWORDS, STORE_PASSWORD, SecuredBroker, acl, secured_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Properties = Callable[[SecuredBroker], Dict[str, str]]


@pytest.fixture(scope="module")
def broker(lab_directory: Path) -> Iterator[SecuredBroker]:
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    with secured_cluster(lab_directory / "logins") as started:
        yield started


def cluster_id(properties: Dict[str, str]) -> str:
    with KafkaCluster(ClusterConfig("A", properties), answer_seconds=20) as cluster:
        return cluster.cluster_id()


def plain(address: str, protocol: str = "PLAINTEXT") -> Dict[str, str]:
    return {"bootstrap.servers": address, "security.protocol": protocol}


def own_pem(broker: SecuredBroker) -> Dict[str, str]:
    """Private key and certificate as Kafka has them: PEM text instead of files."""
    key, end, chain = (broker.stores.directory / "own.pem").read_text().partition("-----END PRIVATE KEY-----")
    return {"ssl.keystore.type": "PEM", "ssl.keystore.key": f"{key}{end}", "ssl.keystore.certificate.chain": chain[1:]}


def in_place(broker: SecuredBroker) -> Dict[str, str]:
    trusted = (broker.stores.directory / "trusted.pem").read_text().replace("\n", " ")
    properties = {"bootstrap.servers": broker.listener("MTLS"), "security.protocol": "SSL"}
    return {**properties, "ssl.truststore.type": "PEM", "ssl.truststore.certificates": trusted, **own_pem(broker)}


def other_name(broker: SecuredBroker) -> Dict[str, str]:
    """A name that is not the certificate's."""
    return {**broker.sasl("source"), "bootstrap.servers": broker.listener("SASL").replace("127.0.0.1", "localhost")}


GETS_IN: Dict[str, Properties] = {
    "certificate, PEM files": lambda broker: broker.tls("PEM"),
    "certificate, PEM text in place": in_place,
    "certificate, PKCS12": lambda broker: broker.tls("PKCS12"),
    "certificate, JKS with a password for the key": lambda broker: broker.tls("JKS"),
    "TLS 1.2": lambda broker: {**broker.tls(), "ssl.enabled.protocols": "TLSv1.2"},
    "PLAIN, PKCS12": lambda broker: broker.sasl("source", "PLAIN", "PKCS12"),
    "SCRAM-SHA-256, JKS": lambda broker: broker.sasl("source", "SCRAM-SHA-256", "JKS"),
    "SCRAM-SHA-512, PEM": lambda broker: broker.sasl("source", "SCRAM-SHA-512"),
    "a name that is not the certificate's, and is not to be checked": lambda broker: {
        **other_name(broker), "ssl.endpoint.identification.algorithm": ""
    },
}  # fmt: skip


@pytest.mark.parametrize("case", GETS_IN)
def test_the_right_properties_get_in(broker: SecuredBroker, case: str) -> None:
    assert cluster_id(GETS_IN[case](broker)) == broker.cluster_id


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        (lambda broker: broker.sasl("source", password="nope"), "the broker refused the login: "),
        (lambda broker: broker.sasl("source", "PLAIN", password="nope"), "the broker refused the login: "),
        (
            lambda broker: {**broker.sasl("source"), "ssl.truststore.location": ""},
            "the broker's certificate is not trusted: ",
        ),
        (
            lambda broker: {**broker.tls(), "ssl.keystore.location": ""},
            "the broker refused our certificate, or that there is none",
        ),
        (other_name, "the broker's certificate is not trusted: Hostname mismatch"),
        (lambda broker: {**broker.tls(), "bootstrap.servers": broker.listener("CLEAR")}, "speaks without TLS: set "),
        (lambda broker: {**broker.sasl("source"), "bootstrap.servers": broker.bootstrap}, "speaks without TLS: set "),
        (
            lambda broker: {**broker.sasl("source"), **plain(broker.bootstrap, "SASL_PLAINTEXT")},
            "takes no login: set security.protocol to PLAINTEXT",
        ),
        (lambda broker: plain(broker.listener("SASL")), "speaks TLS: set security.protocol to SSL or SASL_SSL"),
    ],
)
def test_a_refusal_that_stays_is_told_and_not_waited_out(
    broker: SecuredBroker, properties: Properties, sentence: str
) -> None:
    # Only what is reported at once is called a login: what times out is a cluster that cannot be reached.
    with pytest.raises(ClusterError) as caught:
        cluster_id(properties(broker))
    assert str(caught.value).startswith("cannot log in to the cluster A at ")
    assert sentence in str(caught.value)


@pytest.mark.parametrize("job", ["run_flows", "run_translations"])
def test_continuous_flow_with_a_wrong_password_ends_instead_of_trying_until_the_account_is_locked(
    broker: SecuredBroker, spark: SparkSession, tmp_path: Path, job: str
) -> None:
    from mirror_lib.copy_job import run_flows
    from mirror_lib.groups.job import run_translations

    servers: Servers = {"source": broker.sasl("source", password="nope"), "target": broker.bootstrap}
    settings, more = {"topics": "[orders]", "admin.timeout.ms": 20000}, {"trigger": "1 second"}
    config = load(str(small_config(tmp_path, "wrong", servers, settings, state=tmp_path / "state", **more)))

    def run(stop: threading.Event) -> Sequence[object]:
        if job == "run_flows":
            return [each.error for each in run_flows(config, config.flows, spark, print, stop)]
        return list(run_translations(config, config.flows, spark, print, stop).values())

    with meanwhile(run) as ends:
        until(lambda: bool(ends))
    (error,) = ends
    assert isinstance(error, LoginError) and "the broker refused the login: " in str(error)


@pytest.mark.parametrize(
    ("kind", "changes", "sentence"),
    [
        ("JKS", {"ssl.keystore.password": "nope-1"}, "own.jks cannot be opened: "),
        ("JKS", {"ssl.key.password": "nope-2"}, "own.jks cannot be opened: "),
        ("PKCS12", {"ssl.truststore.password": "nope-3"}, "trusted.p12 cannot be opened: "),
        ("PKCS12", {"ssl.keystore.location": "/no/such.p12"}, "/no/such.p12 does not exist on this machine"),
        ("PEM", {"ssl.truststore.location": "/etc/hostname"}, "holds no certificate"),
    ],
)
def test_a_store_that_cannot_be_opened_is_named_without_its_password(
    broker: SecuredBroker, kind: str, changes: Dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        cluster_id({**broker.tls(kind), **changes})
    assert sentence in str(caught.value)
    assert "nope" not in str(caught.value)


def test_passwords_are_in_no_message(broker: SecuredBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("kafka").setLevel(logging.NOTSET)
    try:
        cluster_id(broker.sasl("source", "PLAIN", "JKS"))
    finally:
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
    assert "kafka" in caplog.text
    assert not [secret for secret in (*PASSWORDS.values(), "canary") if secret in caplog.text]


# --- a whole mirror under guard ---------------------------------------------------------------------------------

USERS = {"A": "source", "B": "CN=mirror"}
# One process for all commands: Java starts once. At DEBUG everything that any library says is searched.
COMMANDS = """
import json, logging, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
from mirror_lib.cli import main
for command in json.loads(sys.argv[1]):
    print("RAN", json.dumps([command[0], main(command)]), flush=True)
"""
CONFIG = """\
clusters:
{clusters}
flows:
  A->B:
    topics: [orders]
    groups: [billing]
    replication.factor: 1
    heartbeats.topic.replication.factor: 1
    checkpoints.topic.replication.factor: 1
    sync.group.offsets.enabled: true
state: {state}
"""


@dataclass
class Guarded:
    """What was run, what it said, and every place where a secret could have been left."""

    broker: SecuredBroker
    directory: Path
    secrets: List[bytes] = field(default_factory=list)
    codes: List[List[object]] = field(default_factory=list)
    output: str = ""
    processes: Set[str] = field(default_factory=set)
    leaking: Set[str] = field(default_factory=set)

    def config(self) -> Path:
        """The file, with every secret in another one."""
        # The source asks for no certificate; it is given one all the same, to have a private key among the options.
        own = own_pem(self.broker)
        clusters = {"A": {**self.broker.sasl("source", kind="JKS"), **own}, "B": self.broker.tls("JKS")}
        self.secrets = [word.encode() for word in (STORE_PASSWORD, KEY_PASSWORD, *PASSWORDS.values())]
        self.secrets.append(own["ssl.keystore.key"].splitlines()[1].encode())
        elsewhere, lines = self.directory / "secrets.properties", []
        with elsewhere.open("w") as file:
            for alias, properties in clusters.items():
                lines.append(f"  {alias}:")
                for name, value in properties.items():
                    secret = any(word.decode() in value for word in self.secrets)
                    file.write(f"{alias}.{name}={value.encode('unicode_escape').decode()}\n" if secret else "")
                    shown = f"${{file:{elsewhere}:{alias}.{name}}}" if secret else value
                    lines.append(f"    {name}: {json.dumps(shown)}")
        path = self.directory / "mirror.yaml"
        path.write_text(CONFIG.format(clusters="\n".join(lines), state=self.directory / "state"))
        return path

    def run(self, *commands: List[str]) -> None:
        """`mirror` with each of `commands`, its processes watched."""
        command = [sys.executable, "-c", COMMANDS, json.dumps(commands)]
        with (self.directory / "output").open("wb") as output:
            process = subprocess.Popen(
                command, cwd=self.directory, env=self._environment(), stdout=output, stderr=output,
                start_new_session=True, preexec_fn=end_with_parent,
            )  # fmt: skip
        watching = threading.Thread(target=self._watch, args=(process,))
        watching.start()
        try:
            process.wait(240)
        finally:
            os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
            watching.join()
        self.output = (self.directory / "output").read_text(errors="replace")
        self.codes = [json.loads(line[4:]) for line in self.output.splitlines() if line.startswith("RAN ")]

    def _environment(self) -> Dict[str, str]:
        for folder in ("events", "tmp", "conf"):
            (self.directory / folder).mkdir(exist_ok=True)
        (self.directory / "conf" / "spark-defaults.conf").write_text(
            f"spark.eventLog.enabled true\nspark.eventLog.dir {self.directory / 'events'}\n"
            "spark.eventLog.compress false\n"
        )
        tmp = str(self.directory / "tmp")
        options = f"{quick_spark()['SPARK_SUBMIT_OPTS']} -Djava.io.tmpdir={tmp}"
        own = {"SPARK_CONF_DIR": str(self.directory / "conf"), "SPARK_LOCAL_DIRS": tmp, "TMPDIR": tmp,
               "SPARK_SUBMIT_OPTS": options, "PYTHONPATH": str(ROOT)}  # fmt: skip
        return {**os.environ, **own}

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None:
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    session = (folder / "stat").read_text().rpartition(")")[2].split()[3]
                    if int(session) == process.pid:
                        seen = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
                        self.processes.add((folder / "comm").read_text().strip())
                        self.leaking |= {folder.name for word in self.secrets if word in seen}
                except OSError:
                    continue  # it has ended
            self.leaking |= self.holding("tmp")
            time.sleep(0.2)

    def holding(self, *folders: str) -> Set[str]:
        """Files below that hold a secret."""
        found = set()
        # Not `rglob`: it fails where a folder is gone before it is listed, as Spark's own are at the end.
        below = (walked for folder in folders for walked in os.walk(self.directory / folder))
        for path in (Path(where, name) for where, _, names in below for name in names):
            try:
                if path.is_file() and path.suffix != ".jar":
                    content = path.read_bytes()
                    found |= {str(path) for word in self.secrets if word in content}
            except OSError:
                continue  # deleted meanwhile
        return found


@pytest.fixture(scope="module")
def guarded(broker: SecuredBroker) -> Guarded:
    """Everything once: plan, run, verify and the move of a group, and before them a run with a wrong password."""
    directory = broker.directory.parent
    made = Guarded(broker, directory)
    fill(broker)
    admin = broker.acl_admin()
    # Another client's rights on the source's topic, for the copy of ACLs.
    grant(admin, [acl("reader", "Read", "Topic", "orders"), *(each.acl(USERS[each.cluster]) for each in rights())])
    admin.close()
    config = made.config()
    wrong = directory / "wrong.yaml"
    (directory / "wrong.properties").write_text(
        (directory / "secrets.properties").read_text().replace(PASSWORDS["source"], PASSWORDS["source"] + "-not")
    )
    wrong.write_text(config.read_text().replace("secrets.properties", "wrong.properties"))
    made.run(
        ["plan", str(wrong)], ["plan", str(config)], ["run", str(config), "--once"], ["verify", str(config)],
        ["groups", "plan", str(config), "--execute"],
    )  # fmt: skip
    return made


def fill(broker: SecuredBroker) -> None:
    broker.create_topic("orders", 2)
    broker.create_topic("heartbeats")
    for number in (0, 1):
        broker.write("orders", *(b"%d" % each for each in range(number, 500, 2)), partition=number)
    read_on(broker, "billing", ["orders"], 300)


def test_exactly_the_rights_of_the_page_are_enough(guarded: Guarded) -> None:
    done = [["plan", 0], ["run", 0], ["verify", 0], ["groups", 0]]
    assert guarded.codes[1:] == done, guarded.output[-5000:]
    assert not [line for line in guarded.output.splitlines() if "not allowed" in line and not line.startswith("DEBUG")]
    assert sum(len(log) for log in read_topic(guarded.broker, "A.orders").values()) == 500
    assert any(read_topic(guarded.broker, "heartbeats").values())
    admin = guarded.broker.acl_admin()
    assert {one.resource_pattern.resource_name for one in granted(admin, "reader")} == {"orders", "A.orders"}
    admin.close()
    with KafkaCluster(config_of(guarded.broker, "A")) as source:
        committed = source.committed_offsets(["billing"])["billing"]
        remote = source.topic_configs(["A.orders"])["A.orders"]
    # What this principal may not create or read tells it nothing of the configs that the brokers know.
    assert remote is not None and remote["message.timestamp.after.max.ms"].value == NO_LIMIT
    assert {topic for topic, _ in committed} == {"orders", "A.orders"}


def test_a_wrong_password_is_told_in_one_sentence(guarded: Guarded) -> None:
    assert guarded.codes[0] == ["plan", 1]
    (reported,) = [line for line in guarded.output.splitlines() if line.startswith("error: ")]
    assert reported.startswith("error: MIR-202: cannot log in to the cluster A at ")
    assert "the broker refused the login: " in reported


def config_of(broker: SecuredBroker, cluster: str) -> ClusterConfig:
    return ClusterConfig(cluster, broker.sasl("source") if cluster == "A" else broker.tls())


@pytest.mark.parametrize(
    ("lane", "topic", "sentence"),
    [
        ("mirror.A->B.99", "unheard", "unheard-0: TOPIC_AUTHORIZATION_FAILED"),
        ("foreign.A->B.99", "A.orders", "needs Write on this transactional id"),
    ],
)
def test_a_missing_right_is_named(guarded: Guarded, lane: str, topic: str, sentence: str) -> None:
    deadline = time.monotonic() + 20
    target = config_of(guarded.broker, "B")
    with log_client(target, "producer", deadline) as client, pytest.raises(ClusterError, match=sentence):
        fence(client, [Lane(lane, {"A.orders": [0], topic: [0]})], deadline)


def test_no_secret_is_left_anywhere(guarded: Guarded) -> None:
    reported = guarded.output.encode()
    assert not [word for word in guarded.secrets if word in reported]
    assert guarded.leaking == set()
    assert guarded.holding("state", "events", "tmp") == set()


def test_plans_of_a_session_made_elsewhere_print_no_secret(spark: SparkSession) -> None:
    names = ("spark.sql.redaction.options.regex", "spark.sql.redaction.string.regex")
    options = {
        "kafka.sasl.jaas.config": 'x required username="u" password="canary-1, (a) b";', "subscribe": "t",
        "kafka.ssl.keystore.key": "-----BEGIN-----\ncanary-2\n", "kafka.ssl.key.password": "canary-3",
        "kafka.bootstrap.servers": "127.0.0.1:1",
    }  # fmt: skip

    def plan() -> str:
        stream = spark.readStream.format("kafka").options(**options).load()
        return str(stream._jdf.queryExecution().toString())

    before = {name: spark.conf.get(name, None) for name in names}
    try:
        for name in names:
            spark.conf.unset(name)
        assert "canary-1" in plan() and "canary-2" in plan()
        open_session("elsewhere")
        assert "canary" not in plan()
        assert "127.0.0.1:1" in plan()
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def test_the_search_for_secrets_sees_them(guarded: Guarded) -> None:
    assert {Path(path).name for path in guarded.holding("")} >= {"secrets.properties", "own.pem"}
    assert guarded.processes >= {"java"}
    events = b"".join(path.read_bytes() for path in (guarded.directory / "events").rglob("*") if path.is_file())
    assert b"mirror A->B" in events and b"SparkListenerSQLExecutionStart" in events
