"""Logging in to a real broker with TLS and SASL: what gets in, and what a refusal says."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, Iterator, Sequence

import pytest

from mirror_lib.config.loader import load
from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import ClusterError, ConfigError, LoginError
from mirror_lib.kafka.admin import KafkaCluster
from tests.lab.flow_lab import Servers, small_config
from tests.lab.meanwhile import meanwhile
from tests.lab.one_flow import until
from tests.lab.secured import PASSWORDS, SecuredBroker, secured_cluster

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


def in_place(broker: SecuredBroker) -> Dict[str, str]:
    """As Kafka has it: PEM text instead of files."""
    own = (broker.stores.directory / "own.pem").read_text()
    key, _, chain = own.partition("-----END PRIVATE KEY-----\n")
    return {
        "bootstrap.servers": broker.listener("MTLS"), "security.protocol": "SSL",
        "ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM",
        "ssl.truststore.certificates": (broker.stores.directory / "trusted.pem").read_text().replace("\n", " "),
        "ssl.keystore.key": f"{key}-----END PRIVATE KEY-----", "ssl.keystore.certificate.chain": chain,
    }  # fmt: skip


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
