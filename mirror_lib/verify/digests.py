"""Reads offset ranges of one cluster as digests: a DataFrame with a row for each record, without its content."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import astuple, dataclass
from typing import Callable, Dict, Optional, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirror_lib.config.client_options import spark_kafka_options
from mirror_lib.config.model import ClusterConfig
from mirror_lib.kafka.reach import accepting
from mirror_lib.ledger.compaction import text_literal
from mirror_lib.rows.origin import ORIGIN_HEADER
from mirror_lib.rows.transform import no_rows
from mirror_lib.spark.jobs import local_rows

# Maps rows of Kafka's source to the rows to digest instead, each with its position.
Made = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Slice:
    """Offsets `[from_offset, until_offset)` of one partition; `expired` offsets before them have left the log. Its rows
    have `slot` instead of the partition's name."""

    slot: int
    topic: str
    partition: int
    from_offset: int
    until_offset: int
    expired: int = 0


@dataclass(frozen=True)
class Feed(Slice):
    """A source partition that is copied to a remote topic. `topic_id` is the start of the topic's id, as in origins."""

    remote_topic: str = ""
    topic_id: str = ""


# The kind of a remote record by its newest origin: the flow's own; of another topic of the source cluster, or of an
# earlier topic of that name; or not from this flow.
OWN, OTHER, FOREIGN = "own", "other", "foreign"


# Headers are an array, or null if there are none: before Spark 4 `size` of null is -1. Order and repeats count. A null
# does not change a hash, so whether a part is null is hashed as well.
_HEADERS = (
    "if(headers is null, 0, size(headers)), "
    "transform(headers, header -> struct(header.key, header.value is null, header.value))"
)
_CONTENT = f"key is null, key, value is null, value, {_HEADERS}, timestamp"
_DIGESTS = (
    *(f"xxhash64({number}, {_CONTENT}) as hash_{number}" for number in (1, 2)),
    f"concat_ws('/', hex(xxhash64(1, {_CONTENT})), hex(xxhash64(2, {_CONTENT}))) as digest",
    "if(key is null, null, concat_ws('/', hex(xxhash64(1, key)), hex(xxhash64(2, key)))) as key_digest",
    "value is null as tombstone",
)
# By field, to compare the contents of a record and its copy.
FIELD_HASHES = {
    "key": "xxhash64(key is null, key)",
    "value": "xxhash64(value is null, value)",
    "headers": f"xxhash64({_HEADERS})",
    "timestamp": "coalesce(unix_millis(timestamp), -1)",
}
_FIELD_HASHES = [f"{hashed} as {name}_hash" for name, hashed in FIELD_HASHES.items()]
_NEWEST_ORIGIN = (
    "cast(aggregate(headers, cast(null as binary), (newest, header) -> "
    f"if(header.key = '{ORIGIN_HEADER}', header.value, newest)) as string)"
)
# The flow's tasks add the origin as the last header.
_WITHOUT_ORIGIN = f"filter(headers, (header, n) -> not (n = size(headers) - 1 and header.key = '{ORIGIN_HEADER}'))"
_IS_ORIGIN = "origin_text rlike '^[^/]+/[^/]+/[0-9]{1,9}/[0-9]{1,18}/[^/]*$'"


_SLOT = (("slot", "int"), ("topic", "string"), ("partition", "int"))
# The fields of a `Feed`. A remote partition has the same fields under other names.
_FEED = (
    *(("origin", "int"), ("source_topic", "string"), ("source_partition", "int")),
    *(("first", "bigint"), ("until", "bigint"), ("expired", "bigint")),
    *(("topic", "string"), ("topic_id", "string")),
)


class DigestReader:
    """Reads digests from one cluster. `isolation_level` is the consumer's; `made` applies the flow's record change."""

    def __init__(
        self, spark: SparkSession, cluster: ClusterConfig, isolation_level: str, made: Optional[Made] = None
    ) -> None:
        self._spark = spark
        self._cluster = cluster
        self._isolation_level = isolation_level
        self._made = made

    def digests(self, slices: Sequence[Slice]) -> DataFrame:
        """One row for each record of `slices`: `slot, offset, tombstone`, two independent 64-bit hashes of key, value,
        headers and timestamp (`hash_1, hash_2`), both as text (`digest`), the same of the key (`key_digest`), and
        `<name>_hash` for each of FIELD_HASHES. Spark computes the columns that are used."""
        return self._records(slices).selectExpr("slot", "offset", *_DIGESTS, *_FIELD_HASHES)

    def made_hashes(self, slots: Sequence[Slice], feeds: Sequence[Feed]) -> DataFrame:
        """`slot, origin, upstream` and `<name>_hash` for each of FIELD_HASHES: the records that the flow makes from
        `feeds`.

        `slot` is the record's place among `slots`, `origin` the slot of its feed. Records without a slot or feed are
        excluded. The headers do not include the flow's own origin."""
        places = ["topic", "source_topic", "source_partition"]
        here = self._records(feeds, slots).join(F.broadcast(self._feeds(feeds)), places)
        ours = here.where("offset >= first and offset < until")
        return ours.selectExpr("slot", "origin", "offset as upstream", *_FIELD_HASHES)

    def found_hashes(self, slots: Sequence[Slice], feeds: Sequence[Feed], cluster: str) -> DataFrame:
        """`slot, downstream, whose`, `origin, upstream, first, until` of the flow's own records, and hashes as in
        `made_hashes`: the records of `slots`. `cluster` is the source's name in the flow's origins."""
        reported = self._records(slots).withColumn("origin_text", F.expr(_NEWEST_ORIGIN))
        parts = reported.withColumn("parts", F.expr(f"if({_IS_ORIGIN}, split(origin_text, '/'), null)")).selectExpr(
            *("slot", "topic", "offset as downstream", "key", "value", "timestamp"),
            f"if(parts is null, headers, {_WITHOUT_ORIGIN}) as headers",
            *("parts[0] as cluster", "parts[1] as source_topic", "cast(parts[2] as int) as source_partition"),
            *("cast(parts[3] as bigint) as upstream", "parts[4] as origin_id"),
        )
        found = parts.join(F.broadcast(self._feeds(feeds)), ["topic", "source_topic", "source_partition"], "left")
        same_topic = "(origin_id = '' or topic_id = '' or origin_id = topic_id)"
        of_flow = f"coalesce(cluster = {text_literal(cluster)}, false)"
        is_own = f"{of_flow} and coalesce({same_topic}, false)"
        whose = f"case when {is_own} then '{OWN}' when {of_flow} then '{OTHER}' else '{FOREIGN}' end as whose"
        return found.selectExpr(
            *("slot", "downstream", whose, f"if({is_own}, origin, null) as origin", "upstream", "first", "until"),
            *_FIELD_HASHES,
        )

    def _feeds(self, feeds: Sequence[Feed]) -> DataFrame:
        return local_rows(self._spark, _FEED, [astuple(each) for each in feeds])

    def _records(self, slices: Sequence[Slice], slots: Optional[Sequence[Slice]] = None) -> DataFrame:
        """The records of `slices` with the slots of their partitions, or of the partitions that `made` gave them."""
        # Spark's source refuses a read of nothing.
        read = [each for each in slices if each.from_offset < each.until_offset]
        places = [(each.slot, each.topic, each.partition) for each in slots or slices]
        records = self._read(read) if read else no_rows(self._spark)
        made = records if self._made is None else self._made(records)
        return made.join(F.broadcast(local_rows(self._spark, _SLOT, places)), ["topic", "partition"])

    def _read(self, slices: Sequence[Slice]) -> DataFrame:
        starts: Dict[str, Dict[str, int]] = defaultdict(dict)
        ends: Dict[str, Dict[str, int]] = defaultdict(dict)
        for each in slices:
            starts[each.topic][str(each.partition)] = each.from_offset
            ends[each.topic][str(each.partition)] = each.until_offset
        options = {
            **spark_kafka_options(accepting(self._cluster), self._spark.version),
            "assign": json.dumps({topic: list(map(int, own)) for topic, own in starts.items()}),
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(ends),
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            "groupIdPrefix": "mirror-verify",
            # Rows have their offsets, so several tasks may read a big partition.
            "minPartitions": str(self._spark.conf.get("spark.sql.shuffle.partitions")),
            "kafka.isolation.level": self._isolation_level,
            # At a log's end a fetch waits this long for more records, and Spark's offset requests queue after it.
            "kafka.fetch.max.wait.ms": "20",
        }
        return self._spark.read.format("kafka").options(**options).load()
