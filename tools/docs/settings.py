"""The table of settings in, the text of docs/reference/settings.md out."""

from __future__ import annotations

from typing import Iterable, List

from mirror_lib.config.model import CLASSES
from mirror_lib.config.settings import SETTINGS
from mirror_lib.config.values import BOOLEAN, TOP, Setting

_HEAD = """# Settings

<!-- Written by `python -m tools.docs.settings`; change mirror_lib/config/model.py instead. -->

One file describes clusters, flows and state: YAML, or a MirrorMaker 2 `.properties` file. `conf/mirror.yaml` and
`conf/mm2.properties` are the same flow in both. Keys and defaults are MirrorMaker 2's (4.3). An unknown key is refused
in YAML, and ignored in MirrorMaker's and Connect's files.

## Where a key may stand

|as `.properties`|in YAML|for|
|---|---|---|
|`key`|at the top level|every flow (a default), or the whole file|
|`A->B.key`|under `flows:`, in `A->B:`|one flow; beats the bare key|
|`A.property`|under `clusters:`, in `A:`|every client of one cluster; any Kafka client property|
|`A.consumer.property` (also `producer.`, `admin.`)|in `A:`|one kind of client of one cluster|
|`A->B.consumer.property` (also `producer.`, `admin.`)|in `A->B:`|one flow, both clusters|
|`A->B.source.consumer.property`, `A->B.target.producer.property`|in `A->B:`|one flow, one cluster|
|`A->B.producer.override.property`|in `A->B:`|the producer of one flow|
|`ssl.*`, `sasl.*`, `security.protocol`, `bootstrap.servers`|at the top level|every client of every cluster|

Client properties, weakest first: bare, `A.property`, `A->B.source.cluster.property`; then for one kind of client: bare,
`A->B.consumer.x`, `A.consumer.x` (a warning names each case), `A->B.source.consumer.x`, `A->B.producer.override.x`.

YAML maps may be nested: `consumer: {isolation.level: read_uncommitted}` is `consumer.isolation.level`.

## Connectors

`mirror run source.json checkpoint.json heartbeat.json` reads MirrorMaker 2's connectors in every form of Connect's
REST: the flat map, `{"name": …, "config": {…}}`, a list of these, or the answer of `GET /connectors?expand=info`. A
standalone connector's `.properties` work too, without the worker's own file.

- Files with one `source.cluster.alias` and `target.cluster.alias` are one flow `A->B`. Without one of the connectors it
  copies nothing, translates no groups, or writes no heartbeats.
- `tasks.max` and the properties `consumer.`, `producer.` and `admin.` are the source connector's; without one, these
  properties are the checkpoint connector's. The mirror refuses connectors that differ in a cluster or the policy.
- `state` and `trigger` may be in any of them. `;` between servers is read as `,`.

## Values

- `${env:NAME}`, `${file:/path:key}` (a Java properties file) and `${dir:/path:file}` refer to a value, in every key
  but `clusters`, and are never printed. A missing value is refused, where Kafka keeps the text.
- Lists are split at commas and trimmed. A YAML list keeps commas inside its items: `topics: ["orders-[0-9]{1,3}"]`.
- `.properties` files are read as Java reads them: ISO-8859-1, `\\uXXXX`, `\\` at the end of a line continues it, and a
  single backslash before any other character is dropped (write `\\\\.` for `\\.`). Comments after a value and quotes
  round it are removed with a warning.
- An interval of -1 means never, as does its `.enabled` key when false.
- A relative `state` is relative to the working directory.

## Patterns

`topics`, `groups` and their `.exclude` lists are Python regular expressions, which must match the whole name. The
mirror refuses `\\p{...}`, `\\Q...\\E`, `\\h`, nested sets (`[a&&b]`, `[a[b]]`), flags such as `(?i)` after the start,
and before Python 3.11 possessive quantifiers (`a++`) and atomic groups. It also refuses what Java cannot read, because
Spark subscribes by the patterns: `(?P<name>...)`, `(?a)`, `(?x)`, `{,3}`, `{` as itself.
Python's `\\d` and `\\w` also match beyond ASCII, which only group names can have.

## Custom classes

A policy or a filter is a built-in, under its Java name (with or without `org.apache.kafka.connect.mirror.`), or your
own Python class, as `module:Class` (example: `conf/examples/custom/mirror.yaml`). Only the driver imports it, from
Python's path or the configuration file's folder; `--py-files` ships it to a driver on another machine. Each flow makes
one `Class(flow, properties)`. `flow` has settings as attributes (`flow.source.alias`, `flow.topics_exclude`),
`properties` keys after the class's key: `topic.filter.class.teams` is `teams`.

|key|methods|
|---|---|
|`replication.policy.class`|extend `DefaultReplicationPolicy` of `mirror_lib/topics/policy.py`: \
`format_remote_topic(alias, topic)`, `topic_source(topic)` and `upstream_topic(topic)` are enough|
|`topic.filter.class`|`why_not(topic)`: a reason, or `None` to copy the topic|
|`group.filter.class`|`why_not(group)`: a reason, or `None` to translate the group|
|`config.property.filter.class`|`excludes(key)`: whether the topic config is excluded|

Answers must depend on the arguments alone. If a method raises or returns another type, the topic is not copied and the
run fails. Internal topics are never copied.

## Clients

- `security.protocol`: `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT`, `SASL_SSL`.
- `sasl.mechanism`: `PLAIN` and `SCRAM-SHA-256/512` with user and password in `sasl.jaas.config`, `GSSAPI` with
  `Krb5LoginModule` there, `OAUTHBEARER` with client credentials, `AWS_MSK_IAM` ([logins.md](../deploy/logins.md)).
  Without `sasl.jaas.config` the section `KafkaClient` of the JAAS file counts that `KAFKA_OPTS` or `JDK_JAVA_OPTIONS`
  names (`-Djava.security.auth.login.config=`).
- `ssl.truststore.*`, `ssl.keystore.*`, `ssl.key.password`: JKS (the default), PKCS12 and PEM files, and PEM text in
  `ssl.truststore.certificates`, `ssl.keystore.key` and `ssl.keystore.certificate.chain`. A key store must hold one
  private key. Without a trust store Java trusts its own certificates, Python the system's.
- `ssl.endpoint.identification.algorithm`: `https`, or empty to skip the check of the host name.
- `ssl.protocol`, `ssl.enabled.protocols`: TLS 1.2 and 1.3. `ssl.cipher.suites` is for Spark's client alone.

Kafka's Java client cannot open a PEM key that is encrypted with PBES2, OpenSSL's default; encrypt it with
`openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES`.
"""
_OTHERS = """\
[mirrormaker-keys.md](mirrormaker-keys.md) has the other keys of MirrorMaker and Connect. Former and misspelt names are
read with a warning, such as `topics.blacklist`, `task.max`, `….interval.ms`, `emit.heartbeats`, `Replication.factor`.
An error names the reason for any other key."""


def page() -> str:
    """The whole page as Markdown."""
    whole_file = [setting for setting in SETTINGS if setting.level == TOP]
    flow = [setting for setting in SETTINGS if setting.level != TOP]
    sections = [
        _HEAD,
        _section("For the whole file", "", _table(whole_file)),
        _section("For a flow", "", _table(flow)),
        _section("Other keys", _OTHERS, []),
    ]
    return "\n".join(sections)


def _section(title: str, text: str, lines: Iterable[str]) -> str:
    return "\n".join([f"## {title}", "", *([text, ""] if text else []), *lines, ""])


def _table(settings: Iterable[Setting]) -> List[str]:
    head = ["|key|value|default|meaning|", "|---|---|---|---|"]
    return [*head, *(f"|`{s.name}`|{_kind(s)}|{_code(s.default)}|{_meaning(s)}|" for s in settings)]


def _kind(setting: Setting) -> str:
    return "boolean" if setting.kind is BOOLEAN else setting.kind.name


def _meaning(setting: Setting) -> str:
    text = setting.differs.replace(f"{CLASSES} are Python's", "[Python's](#custom-classes)")
    note = f"**Differs:** {text}" if text else setting.note
    return f"{setting.meaning}. {note[0].upper()}{note[1:]}" if note else setting.meaning


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    print(page(), end="")
