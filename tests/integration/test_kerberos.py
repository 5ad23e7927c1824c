"""GSSAPI by configuration: one keytab, one set of properties, for Spark's Java client and for the Python side."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path
from typing import TYPE_CHECKING, Iterator

import pytest

from mirror_lib.config.client_options import spark_kafka_options
from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import ClusterError
from mirror_lib.kafka.admin import KafkaCluster
from tests.lab.brokers import KafkaBroker
from tests.lab.checkout import ROOT
from tests.lab.examples import EXAMPLES
from tests.lab.group_lab import commit
from tests.lab.kdc import Kdc, kdc, kerberized, line, outer, properties
from tests.lab.readers import differences, read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(find_library("gssapi_krb5") is None, reason="MIT's Kerberos library is not installed"),
]


@pytest.fixture(scope="module")
def centre(lab_directory: Path) -> Iterator[Kdc]:
    principals = ("kafka/localhost", "mirror", "stranger")
    with kdc(lab_directory / "kdc", *principals) as started, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", str(started.krb5_conf))
        yield started


@pytest.fixture(scope="module")
def broker(centre: Kdc, lab_directory: Path) -> Iterator[KafkaBroker]:
    with kerberized(centre, lab_directory, "kerberos") as started:
        yield started


def test_a_keytab_serves_spark_and_the_python_side_alike(
    broker: KafkaBroker, centre: Kdc, spark: SparkSession
) -> None:
    client = properties(broker, line(centre.keytab("mirror"), "mirror"))
    topic = broker.create_topic("kerberos")
    broker.write(topic, b"one")
    with KafkaCluster(ClusterConfig("A", client)) as cluster:
        assert topic in cluster.topics()
    assert spark._jvm is not None
    spark._jvm.java.lang.System.setProperty("java.security.krb5.conf", str(centre.krb5_conf))
    options = spark_kafka_options(client, spark.version)
    records = spark.read.format("kafka").options(**options).option("subscribe", topic).load()
    assert [row.value for row in records.select("value").collect()] == [b"one"]


def test_a_keytab_of_somebody_else_is_told_at_once(broker: KafkaBroker, centre: Kdc) -> None:
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    keytab = centre.keytab("stranger")
    with pytest.raises(ClusterError, match=r"cannot log in to the cluster A at .*: Kerberos gave no ticket"):
        KafkaCluster(ClusterConfig("A", properties(broker, line(keytab, "absent"))), answer_seconds=20)


def test_published_mirrormaker_1_command_copies_with_kerberos_on_both_sides(
    broker: KafkaBroker, centre: Kdc, tmp_path: Path
) -> None:
    with kerberized(centre, tmp_path, "target") as target:
        meant = {
            "SOURCE_BROKERS": outer(broker),
            "TARGET_BROKERS": outer(target),
            "/tmp/mirrormaker.keytab": str(centre.keytab("mirror")),
            "mirrormaker/HOSTNAME@EXAMPLE.COM": "mirror",
            "--new.consumer": f"--new.consumer --once --state {tmp_path / 'state'}",
        }
        for file in (EXAMPLES / "mm1" / "hortonworks" / "kerberos").iterdir():
            text = file.read_text()
            for word, other in meant.items():
                text = text.replace(word, other)
            (tmp_path / file.name).write_text(text)
        command = tmp_path / "mirror"
        command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m mirror_lib.cli "$@"\n')
        command.chmod(0o755)
        topic = broker.create_topic("my-topic")
        commit(broker, "KafkaMirror", topic, 0)  # the consumer begins at the end where the group has no offset
        broker.write(topic, *(b"%d" % number for number in range(20)))
        environment = {
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            # A machine of a Kerberos realm has this file as /etc/krb5.conf.
            "JAVA_TOOL_OPTIONS": f"-Djava.security.krb5.conf={centre.krb5_conf}",
        }
        ran = subprocess.run(
            ["bash", "mirror.sh"], cwd=tmp_path, env=environment, timeout=180, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
        copied = read_topic(target, topic)
        assert len(copied[0]) == 20
        assert differences(read_topic(broker, topic), copied) == []
