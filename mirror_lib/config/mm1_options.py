"""The tables of MirrorMaker 1: its command-line options, the keys of its two client files, and what each comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Tuple

from mirror_lib.config.settings import DIFFERS, SUPPORTED
from mirror_lib.config.unused_keys import Unused

IGNORED = "ignored"
REFUSED = "refused"

FILES = ("consumer.config", "producer.config")


@dataclass(frozen=True)
class Option:
    """One option of `kafka.tools.MirrorMaker`. `metavar` is `""` for a flag; `reason` is why it is not as it was.

    With `implied` the option may stand without a value, and that is then its value. A file's option may be repeated.
    """

    name: str
    metavar: str
    meaning: str
    status: str = SUPPORTED
    reason: str = ""
    other_names: Tuple[str, ...] = ()
    implied: str = ""


_COPIED = "record batches are copied as they are; nothing is gathered in a queue"

OPTIONS: Tuple[Option, ...] = (
    Option("consumer.config", "FILE", "consumer settings of a source cluster; give it once for each source"),
    Option("producer.config", "FILE", "producer settings of the target cluster"),
    Option("whitelist", "REGEX", "topics to copy; a comma is read as |", other_names=("include", "white-list")),
    Option("blacklist", "REGEX", "topics not to copy, of all; a comma is read as |",
           other_names=("exclude", "black-list")),
    Option("num.streams", "N", "how many Spark tasks copy", DIFFERS,
           "is read as `tasks.max`: one task copies many partitions at once, so a few are enough; at most 64"),
    Option("num.producers", "N", "no meaning", IGNORED, "each lane has a producer of its own"),
    Option("queue.size", "N", "no meaning", IGNORED, _COPIED),
    Option("abort.on.send.fail", "true|false", "whether the run fails where the target rejects a record (default "
           "true); with false the record is left out and written down as an incident",
           other_names=("abort.on.send.failure", "abortOnSendFail"), implied="true"),
    Option("offset.commit.interval.ms", "MS", "how often progress is committed to the source under the consumer's "
           "group.id (default 60000)"),
    Option("message.handler", "CLASS", "refused", REFUSED,
           "a Java class cannot run here, and records would be copied without it"),
    Option("message.handler.args", "TEXT", "no meaning without a handler", IGNORED, "it is for a message handler"),
    Option("consumer.rebalance.listener", "CLASS", "no meaning", IGNORED,
           "partitions do not move between consumers here"),
    Option("rebalance.listener.args", "TEXT", "no meaning", IGNORED, "it is for a rebalance listener"),
    Option("new.consumer", "", "no meaning", IGNORED, "there is no other consumer"),
    Option("help", "", "show all options"),
)

# By file: names of before Kafka 0.9 to those of today.
RENAMED: Mapping[str, Mapping[str, str]] = {
    "consumer.config": {"groupid": "group.id", "zk.groupid": "group.id", "autooffset.reset": "auto.offset.reset"},
    "producer.config": {"broker.list": "bootstrap.servers", "metadata.broker.list": "bootstrap.servers"},
}
OLD_RESETS: Mapping[str, str] = {"smallest": "earliest", "largest": "latest"}
ZOOKEEPER = Unused(("zk.*", "zookeeper.*"), "ZooKeeper is not asked; bootstrap.servers names the brokers")

_BYTES = Unused(("key.serializer", "value.serializer", "serializer.class", "key.serializer.class", "key.deserializer",
                 "value.deserializer", "serializer.encoding"), "bytes are copied and never interpreted")
# By file: keys that would have been taken for client properties, or that no client of today knows.
CLIENT_KEYS: Mapping[str, Tuple[Unused, ...]] = {
    "consumer.config": (
        ZOOKEEPER,
        _BYTES,
        Unused(("consumer.timeout.ms",), "the fetcher sets its own wait"),
        Unused(("shallow.iterator.enable",), "record batches are always copied without unpacking them"),
        Unused(("mirror.topics.whitelist", "mirror.topics.blacklist", "mirror.consumer.numthreads"),
               "the command line says which topics are copied"),
        Unused(("enable.auto.commit", "auto.commit.enable", "auto.commit.enabled", "autocommit.enable",
                "auto.commit.interval.ms", "autocommit.interval.ms", "offsets.storage", "dual.commit.enabled",
                "offsets.commit.max.retries", "offsets.channel.*"),
               "progress is in the ledger, and from there committed to the group"),
        Unused(("partition.assignment.strategy", "rebalance.*", "num.consumer.fetchers", "group.instance.id",
                "group.protocol", "group.remote.assignor", "consumer.id", "refresh.leader.backoff.ms"),
               "one process of a group copies, with as many tasks as are wanted, and the others stand by"),
        Unused(("fetch.size", "fetch.message.max.bytes", "queued.max.message.chunks", "queuedchunks.max", "socket.*",
                "backoff.increment.ms", "fetcher.backoff.ms", "fetch.wait.max.ms"), "the fetcher sets its own sizes"),
    ),
    "producer.config": (
        ZOOKEEPER,
        _BYTES,
        Unused(("compression.type", "compression.codec", "compressed.topics", "compression.gzip.level",
                "compression.lz4.level", "compression.zstd.level"),
               "record batches keep the codec that they have; set compression.type of the remote topic, and its "
               "brokers compress anew"),
        Unused(("producer.type", "queue.*", "batch.size", "batch.num.messages", "linger.ms", "buffer.memory",
                "buffer.size", "max.block.ms", "block.on.buffer.full", "send.buffer.bytes", "client.buffer"), _COPIED),
        Unused(("max.message.size", "max.request.size"), "the remote topic's max.message.bytes decides"),
        Unused(("acks", "request.required.acks", "retries", "message.send.max.retries", "retry.backoff.ms",
                "max.in.flight.requests.per.connection", "enable.idempotence", "delivery.timeout.ms",
                "request.timeout.ms", "transactional.id", "transaction.timeout.ms", "num.retries"),
               "writes are idempotent, acknowledged by all in-sync replicas, in order, and tried again"),
        Unused(("partitioner.*",), "a record keeps the number of its partition; it goes by its key where the remote "
               "topic has another number of them"),
        Unused(("event.handler", "event.handler.props", "callback.handler", "callback.handler.props"),
               "no Java class runs here"),
    ),
}
