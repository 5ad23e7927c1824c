"""The table of settings in, the text of docs/reference/settings.md out."""

from __future__ import annotations

from typing import Iterable, List

from mirror_lib.config.keys import UNUSED
from mirror_lib.config.settings import DIFFERS, MISSPELLINGS, OLD_NAMES, SETTINGS, TOP, Setting

_HEAD = """# Settings

<!-- Written by `python -m tools.docs.settings`; change mirror_lib/config/settings.py instead. -->

One file describes clusters, flows and state: YAML, or a MirrorMaker 2 `.properties` file as it is.
`conf/mirror.yaml` and `conf/mm2.properties` are the same flow in both. Keys and defaults are MirrorMaker 2's (4.3).
The connectors of Kafka Connect are read too, see "Connectors" below.

An unknown key is refused with its line and the nearest known one. Keys that are accepted without effect are named once
at the start of a run, with the reason.

## Where a key may stand

| as `.properties` | in YAML | for |
| --- | --- | --- |
| `key` | at the top level | every flow (a default), or the whole file |
| `A->B.key` | under `flows:`, in `A->B:` | one flow; beats the bare key |
| `A.property` | under `clusters:`, in `A:` | every client of one cluster; any Kafka client property |
| `A.consumer.property` (also `producer.`, `admin.`) | the same, in `A:` | one kind of client of one cluster |
| `A->B.consumer.property` (also `producer.`, `admin.`) | in `A->B:` | one flow, both clusters |
| `A->B.source.consumer.property`, `A->B.target.producer.property` | in `A->B:` | one flow, one cluster |
| `A->B.producer.override.property` | in `A->B:` | the producer of one flow |
| `ssl.*`, `sasl.*`, `security.protocol`, `bootstrap.servers` | at the top level | every client of every cluster |

Client properties, weakest first: bare, `A.property`, `A->B.source.cluster.property`; then for one kind of client: bare,
`A->B.consumer.x`, `A.consumer.x`, `A->B.source.consumer.x`, `A->B.producer.override.x`. That a cluster's own
`A.consumer.x` beats `A->B.consumer.x` is MirrorMaker 2's rule; a warning names each case.

MirrorMaker 2 drops bare `consumer.`, `producer.` and `admin.` keys; here they count for every flow, with a warning.
In YAML maps may be nested: `consumer: {isolation.level: read_uncommitted}` is `consumer.isolation.level`.
A flow runs where `A->B.enabled = true`; in YAML, where it is listed.

## Connectors

`mirror run source.json checkpoint.json heartbeat.json` reads `MirrorSourceConnector`, `MirrorCheckpointConnector` and
`MirrorHeartbeatConnector` as Connect's REST takes and gives them: the flat map, `{"name": …, "config": {…}}`, a list of
these, or the answer of `GET /connectors?expand=info`. A standalone worker's `.properties` are the same.

- Files of one `source.cluster.alias` and `target.cluster.alias` are one flow `A->B`. It runs if its source connector is
  there; without a checkpoint connector no groups are translated, without a heartbeat connector no heartbeats written.
- A connector counts for its own part only, as in Connect: `tasks.max` is the source connector's, and so are
  `consumer.`, `producer.` and `admin.` properties. Keys that a connector does not read are named once. Where two
  connectors say different things of one cluster or of the policy, they are refused.
- `state` and `trigger` may stand in any of them. `;` between servers is read as `,`. Records are copied byte for byte,
  whatever converters are named.

## Values

- `${env:NAME}`, `${file:/path:key}` (a Java properties file) and `${dir:/path:file}` stand for a value that lies
  elsewhere. They work in every value but `clusters`. Secrets belong there; they are never printed.
- Lists are split at commas and trimmed. A YAML list keeps commas inside its items: `topics: ["orders-[0-9]{1,3}"]`.
- `.properties` files are read as Java reads them: ISO-8859-1, `\\uXXXX`, `\\` at the end of a line continues it, and
  a single backslash before any other letter is dropped (write `\\\\.` for `\\.`). There are no comments after a value
  and no quotes round it; where a setting has them all the same, they are taken off with a warning.
- An interval of -1 means never; so does the `.enabled` key next to it when false.
- A relative `state` is relative to the folder in which the command is started.

## Patterns

Names and patterns of `topics`, `groups` and their `.exclude` lists are Java regular expressions in MirrorMaker 2 and
Python regular expressions here; the whole name must match. What topic names need is the same in both. Refused are
`\\p{...}`, `\\Q...\\E`, `\\h`, sets within sets (`[a&&b]`, `[a[b]]`), flags such as `(?i)` after the start, and before
Python 3.11 possessive quantifiers (`a++`) and atomic groups. In Python `\\d` and `\\w` include letters and digits
beyond ASCII, which only group names can have.

## Custom classes

A policy or a filter is a built-in, under its Java name (with or without `org.apache.kafka.connect.mirror.`), or a
Python class of your own, written `module:Class`. The module is looked for where Python looks, then in the folder of the
configuration file; where Spark starts the driver on another machine, ship it with `--py-files`. Only the driver imports
it. The class is made once a flow, as `Class(flow, properties)`: `flow` has the flow's settings as attributes
(`flow.source.alias`, `flow.topics_exclude`), `properties` the keys that stand behind the class's own, so that
`topic.filter.class.teams` comes as `teams`. Built-ins take no such keys.

| key | methods |
| --- | --- |
| `replication.policy.class` | as `DefaultReplicationPolicy` of `mirror_lib/topics/policy.py` has them. Extend it: \
`format_remote_topic(alias, topic)`, `topic_source(topic)` and `upstream_topic(topic)` are enough |
| `topic.filter.class` | `why_not(topic)`: a reason, or `None` where the topic is to be copied |
| `group.filter.class` | `why_not(group)`: a reason, or `None` where the group's offsets are to be translated |
| `config.property.filter.class` | `excludes(key)`: whether the topic config is left alone |

A class that cannot be loaded, or lacks a method, is refused with the line that names it. A topic for which one raises,
or answers with something else, is not copied, and the run fails with that sentence. Answers must depend on arguments
alone. Internal topics are never copied, whatever a class says. `conf/examples/custom/mirror.yaml` is an example.

## Flows that change records

Where one of `where`, `select`, `transform`, `rename`, `partitioner` and `dead.letter.topic` is set, or
`engine: records`, the flow goes through Spark's rows, record by record. Without them it copies whole batches, several
times as fast and with the source's compression: set none of them where records stay as they are. In whole batches a
record of 1 KB cost 1.4 µs of CPU, in a tuned MirrorMaker 2 9.5 ([benchmarks](../project/benchmarks.md)). Through rows:

| 1 KB, 2 cores | records/s | MirrorMaker 2, tuned | CPU µs a record | MirrorMaker 2 |
| --- | ---: | ---: | ---: | ---: |
| `select: *` | 229,000 | 192,000 | 5.3 | 7.4 |
| a field of the JSON value masked | 231,000 | 201,000, and nothing masked | 6.3 | 6.7 |
| a tenth kept, by a header | 237,000 | 353,000 | 5.7 | 3.7 |
| a tenth kept, by a field of the JSON value | 202,000 | 451,000, by a header | 7.8 | 3.0 |
| … bytes first, as below | 253,000 | 423,000, by a header | 5.8 | 3.1 |

The last three were measured on 25 November 2026 on a slower day; their ratios count.

`get_json_object` takes a value apart from its first byte to its last. Look at the bytes first where that leaves most
records out: `contains(value, cast('placed' as binary)) and get_json_object(…) = 'placed'`. Both ways are exact.
`conf/examples/changes` has a file for each kind of change; `mirror plan` says what a file comes to.

- The order is `transform`, `where`, `select`. Each sees the columns that Spark's Kafka source has; `headers` is an
  array, empty where a record has none. `select` begins with `*` to keep what it does not name. Text that it gives as
  `key` or `value` is written as UTF-8. Quotes and `#` are part of an expression, also in `.properties`.
- `rename` is a list of `TOPIC -> NAME`, in YAML also a map. Where it can bring topics together (`a|b -> c`, or a group
  that is not in the name) or gives one several names (`a -> b c`), each remote topic gets all records of its topics,
  once. Its order is that of the source within a partition of the source, and the copy's between them. A remote topic
  is as wide as the widest of its topics and has the configs of the first by name; ACLs are not copied, since a right
  on one of several is none on all. A remote topic that is added later to topics that were copied before is refused.
- Refused before anything is copied, with the line: unknown columns, a `select` that loses a part of the record, and
  what could change order or number of records (sorting, grouping, joins, limits, windows, `explode`).
- A record on which an expression fails goes to `dead.letter.topic` as it came, with two more headers: `mirror.error`
  has the reason, `mirror.origin` the place. It is in the partition of its source, modulo the number of partitions
  there. Without that topic its partition stops there; with `on.error: skip` the record is left out, with an incident.
  `transform` may add a column `failure`: its text, where it is not null, is such a reason. A Python function that
  raises fails the whole micro-batch.
- Expressions may give other values each time: `rand()`, `uuid()`, `current_timestamp()`, Python functions. Each
  record is written once, with the value of the attempt that wrote it. Only what places a record must be
  deterministic: the `key` of a flow with `partitioner: key` or a number, and `remote_topic`. Else the flow is
  refused.
- With `partitioner` other than `source`, or such a `rename`, several partitions meet in one: groups of such topics
  read a part of a micro-batch again ([consumer-groups.md](../run/consumer-groups.md)), and `on.data.loss: continue` is
  refused. Records without a key go by the partition they came from.
- A topic continues as it began: where its records kept their partitions, a `partitioner` or `rename` by which they are
  repartitioned is refused, and the other way round, since all of it would be copied a second time.
- Another `where`, `select` or `transform` counts from where the flow stands; what was copied by the old one stays
  ([change-settings.md](../run/change-settings.md)).
- A `transform` is looked for like a custom class, above. Functions of yours that run on executors must be importable
  there (`--py-files`).

### The header mirror.origin

Each record that such a flow writes has one header more, the last: `mirror.origin`. Its value is text,
`CLUSTER/TOPIC/PARTITION/OFFSET/ID`, as in `A/orders/3/1234/Qx7f2k`. CLUSTER is the alias of the source. If the file
has a `name` other than `mirror`, that name and `:` come before it, as in `eu:A`. ID is the beginning of the topic's
id, empty where brokers have none. A copy of a copy has one such header for each hop; the last one is of the last hop.

After a kill a task reads these headers from the ledger's position on, and writes only what comes after the highest
origin of each source partition. So records are there once, whatever was interrupted. Records of before the first run
of this release have no origin; that is right where they lie before the ledger's position. A record without an origin
after that position is refused, unless `shared.remote.topics: true` says that others write there. With
`provenance: off` the header is left out, and what an interrupted attempt wrote is written again: the flow is at
least once. `mirror plan` and the start of a run say so.

To read it in a consumer:

| client | expression |
| --- | --- |
| kafka-python | `dict(record.headers)["mirror.origin"].decode()` |
| Java | `new String(record.headers().lastHeader("mirror.origin").value(), StandardCharsets.UTF_8)` |
| Spark SQL, with `includeHeaders` | \
`aggregate(headers, cast(null as string), (o, h) -> if(h.key = 'mirror.origin', cast(h.value as string), o))` |

Several copies of one topic, such as the large orders, some customers' orders, and all of them masked, are a flow each.
In one file give the source an alias for each, so that the flows and their remote topics (`large.orders`, `eu.orders`)
have names of their own:

```yaml
clusters:
  large: {bootstrap.servers: "source:9092"}
  eu: {bootstrap.servers: "source:9092"}
  backup: {bootstrap.servers: "target:9092"}
flows:
  large->backup:
    topics: [orders]
    where: cast(get_json_object(cast(value as string), '$.total') as double) >= 500
  eu->backup:
    topics: [orders]
    where: exists(headers, h -> h.key = 'region' and cast(h.value as string) = 'eu')
```

Or write a file for each, all with the flow `A->B`. Then each needs a `name` of its own, else they shut each other out
as two drivers of one flow would; a `state` of its own, since tables tell flows apart by `A->B` alone; and by `rename`
remote topics of its own.

## Clients

The same properties serve Spark's Java client and kafka-python.

- `security.protocol`: `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT`, `SASL_SSL`.
- `sasl.mechanism`: `PLAIN` and `SCRAM-SHA-256/512` with user and password in `sasl.jaas.config`, `GSSAPI` with
  `Krb5LoginModule` there ([secrets.md](../deploy/secrets.md)), `OAUTHBEARER` with client credentials, `AWS_MSK_IAM`
  ([logins.md](../deploy/logins.md)). Delegation tokens are refused.
  For clusters without that key the `KafkaClient` section of a JAAS file counts, if `KAFKA_OPTS` or `JDK_JAVA_OPTIONS`
  name one by `-Djava.security.auth.login.config=`.
- `ssl.truststore.*`, `ssl.keystore.*`, `ssl.key.password`: JKS (the default), PKCS12 and PEM files, and PEM text in
  `ssl.truststore.certificates`, `ssl.keystore.key` and `ssl.keystore.certificate.chain`. JKS and PKCS12 are opened by
  Java on the Python side too; a key store must hold one private key. Without a trust store Java trusts what came with
  it, Python what the system trusts.
- `ssl.endpoint.identification.algorithm`: `https`, or empty to skip the check of the host name.
- `ssl.protocol`, `ssl.enabled.protocols`: TLS 1.2 and 1.3. `ssl.cipher.suites`: GCM and CHACHA20 suites; the choice
  among the suites of TLS 1.3 is Java's only.

Kafka's Java client cannot open a PEM key that is encrypted with PBES2, OpenSSL's default; encrypt it with
`openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES`.
"""


def page() -> str:
    """The whole page as Markdown."""
    whole_file = [setting for setting in SETTINGS if setting.level == TOP]
    flow = [setting for setting in SETTINGS if setting.level != TOP]
    sections = [
        _HEAD,
        _section("For the whole file", "", _table(whole_file)),
        _section("For a flow", "", _table(flow)),
        _section("Ignored or refused", "`*` stands for any ending.", _unused()),
        _section("Other spellings", "Accepted with a warning that names the right key.", _other_names()),
    ]
    return "\n".join(sections)


def _section(title: str, text: str, lines: Iterable[str]) -> str:
    return "\n".join([f"## {title}", "", *([text, ""] if text else []), *lines, ""])


def _table(settings: Iterable[Setting]) -> List[str]:
    head = ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    return [*head, *(f"| `{s.name}` | {s.kind.name} | {_code(s.default)} | {_meaning(s)} |" for s in settings)]


def _meaning(setting: Setting) -> str:
    note = f"{'**Differs:** ' if setting.status == DIFFERS else ''}{setting.note}"
    return f"{setting.meaning}. {note[0].upper()}{note[1:]}" if note else setting.meaning


def _unused() -> List[str]:
    rows = [
        f"| {', '.join(_code(name) for name in row.names)} | {'refused' if row.refused else 'ignored'} | {row.reason} |"
        for row in UNUSED
    ]
    return ["| keys | | why |", "| --- | --- | --- |", *rows]


def _other_names() -> List[str]:
    rows = [f"| `{wrong}` | `{right}` |" for wrong, right in {**OLD_NAMES, **MISSPELLINGS}.items()]
    general = [
        "| `….interval.ms` (milliseconds) | `….interval.seconds` |",
        "| `emit.heartbeats`, `sync.group.offsets` and the like | the same with `.enabled` |",
        "| other capitals, as in `Replication.factor` | lower case |",
    ]
    return ["| written | read as |", "| --- | --- |", *rows, *general]


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    print(page(), end="")
