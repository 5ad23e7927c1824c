"""Sorts the keys of a `Document`: settings by scope, client properties by scope and prefix.

Refuses unknown keys with the nearest known one, maps aliases, and warns of keys without effect.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Dict, FrozenSet, List, Mapping, Optional, Tuple

from mirror_lib.config.document import MM2, Document, Entry, config_error, nearest
from mirror_lib.config.mm2_reader import tidy
from mirror_lib.config.record_change import CONDITION, SELECT_LIST
from mirror_lib.config.settings import BY_NAME, FLOW, MISSPELLINGS, OLD_NAMES, REMOVED, TOP, Setting, class_key

_NAMES = """
    acks allow.auto.create.topics auto.commit.interval.ms auto.offset.reset batch.size bootstrap.controllers
    bootstrap.servers buffer.memory check.crcs client.dns.lookup client.id client.rack compression.gzip.level
    compression.lz4.level compression.type compression.zstd.level config.providers connections.max.idle.ms
    default.api.timeout.ms delivery.timeout.ms enable.auto.commit enable.idempotence enable.metrics.push
    exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id
    group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes
    internal.throw.on.fetch.stable.offset.unsupported isolation.level key.deserializer key.serializer linger.ms
    max.block.ms max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms
    max.poll.records max.request.size metadata.max.age.ms metadata.max.idle.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
    partitioner.ignore.keys receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms
    retries retry.backoff.max.ms retry.backoff.ms sasl.client.callback.handler.class sasl.jaas.config
    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class
    sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
    sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url security.protocol security.providers send.buffer.bytes session.timeout.ms
    share.acknowledgement.mode share.acquire.mode socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms ssl.cipher.suites ssl.enabled.protocols
    ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type
    ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
    ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
    transaction.timeout.ms transaction.two.phase.commit.enable transactional.id value.deserializer value.serializer
"""

CLIENT_PROPERTIES: FrozenSet[str] = frozenset(_NAMES.split())

_CONNECTING = ("ssl.", "sasl.", "security.", "bootstrap.", "client.id", "reconnect.backoff.", "group.id")
_ALSO = ("request.timeout.ms", "connections.max.idle.ms", "metadata.max.age.ms", "isolation.level", "auto.offset.reset")


def reaches_the_copy(key: str) -> bool:
    """Whether a client property means something beyond Spark's own source, which only looks where a log ends."""
    return key.startswith(_CONNECTING) or key in _ALSO or key not in CLIENT_PROPERTIES


@dataclass(frozen=True)
class Unused:
    """Keys of MirrorMaker or Connect that have no meaning here (a trailing `*` stands for any ending), and why.

    With `refused` the keys would have changed the copy, so a file that has one is not accepted; with `accepted`
    as well, only one that names another class than these.
    """

    names: Tuple[str, ...]
    reason: str
    refused: bool = False
    accepted: Tuple[str, ...] = ()

    def refuses(self, key: str, value: str) -> bool:
        """Whether a file with this value is not accepted. A reference is not resolved here."""
        if self.accepted:
            return key in self.names and "${" not in value and value.strip().rpartition(".")[2] not in self.accepted
        return self.refused

    def covers(self, key: str) -> bool:
        """Whether `key` is one of `names`."""
        return any(key.startswith(name[:-1]) if name.endswith("*") else key == name for name in self.names)


UNUSED: Tuple[Unused, ...] = (
    Unused(("transforms*", "predicates*"), "single message transforms do not run here, and records would be copied "
           "without them; `where`, `select` and `rename` do what they do", refused=True),
    Unused(("minPartitions", "maxRecordsPerPartition"), "Spark would read a partition in several tasks, and the order "
           "of its records would be lost", refused=True),
    Unused(("offset.storage.*", "offset.flush.*", "config.storage.*", "status.storage.*", "offsets.storage.topic",
            "group.id", "internal.key.converter*", "internal.value.converter*", "scheduled.rebalance.max.delay.ms",
            "rebalance.timeout.ms", "plugin.*", "worker.*", "inter.worker.*", "connect.protocol", "connector.class",
            "connector.client.*", "task.index", "task.shutdown.graceful.timeout.ms", "topic.creation.*",
            "topic.tracking.*", "errors.*", "tasks.max.enforce", "connector.plugin.version", "config.action.reload"),
           "there is no Connect worker; Spark runs the tasks and state lies under `state`"),
    Unused(("key.converter", "value.converter", "header.converter"), "records are copied byte for byte; only "
           "ByteArrayConverter, which does that, is accepted", True, ("ByteArrayConverter",)),
    Unused(("key.converter.*", "value.converter.*", "header.converter.*"), "settings of a converter; records are "
           "copied byte for byte"),
    Unused(("consumer.group.id",), "partitions are assigned, as MirrorMaker 2 does it, so there is no group to join"),
    Unused(("dedicated.mode.enable.internal.rest", "listeners", "rest.*", "admin.listeners*", "access.control.*",
            "response.http.*", "ssl.client.auth"), "there is no REST server"),
    Unused(("exactly.once.support", "exactly.once.source.support", "transaction.boundary*"),
           "`delivery` decides, and exactly-once is the default"),
    Unused(("metric.names.formats", "add.source.alias.to.metrics", "auto.include.jmx.reporter", "metric.reporters"),
           "there are no JMX metrics; `metrics.port` and Spark's metrics system have their counterparts"),
    Unused(("use.incremental.alter.configs",), "configs are always altered one by one"),
    Unused(("forwarding.admin.class",), "no Java class runs on the way to the admin client, so topics would be created "
           "past it; only ForwardingAdmin, which adds nothing, is accepted", True, ("ForwardingAdmin",)),
    Unused(("consumer.poll.timeout.ms",), "the fetcher sets its own wait"),
    Unused(("task.assigned.*", "task.class"), "MirrorMaker's connectors set it for their tasks"),
    Unused(("readahead.queue.capacity", "heartbeats.topic.retention.ms", "checkpoints.topic.retention.ms",
            "offset.syncs.topic.retention.ms", "offset-syncs.topic.retention.ms"),
           "guides name it, and no release of MirrorMaker 2 reads it"),
    Unused(("source.cluster.alias", "target.cluster.alias"), "`A->B` names both clusters"),
    Unused(("config.providers*",), "`${env:NAME}`, `${file:/path:key}` and `${dir:/path:file}` always work; limits set "
           "on a provider are not applied"),
)


def unused(key: str) -> Optional[Unused]:
    """The row of `UNUSED` that covers `key`, if any."""
    return next((row for row in UNUSED if row.covers(key)), None)


ROLES = ("consumer", "producer", "admin")
SIDES = ("source", "target")
# The longest come first: "consumer." is also the start of "consumer.override.".
_FLOW_PREFIXES = (
    *(f"{role}.override" for role in ROLES),
    *(f"{side}.cluster" for side in SIDES),
    *(f"{side}.{role}" for side in SIDES for role in ROLES),
    *ROLES,
)
_BARE_CLIENT_KEY = re.compile(r"ssl\..*|sasl\..*|security\.protocol|bootstrap\.servers")
# Client properties whose values may hold '#', '//' and quotes of their own.
_HOLDS_ANYTHING = re.compile(r"password|jaas|secret|keystore\.key|certificate|client\.id|\.url")
_ONLY_SPARKS = "kept for Spark's source, which only looks; what copies has its own sizes, waits and acknowledgements"


@dataclass(frozen=True)
class Keys:
    """`settings` by (scope, name); `clients` by (scope, prefix) and Java name, the prefix `""` meaning every client.

    `custom` are the keys for classes of the user's, by (scope, key). `notes` are the warnings about single keys that
    count, by scope and key as written; `ignored` are the keys that do not, and why.
    """

    settings: Mapping[Tuple[str, str], Entry]
    clients: Mapping[Tuple[str, str], Mapping[str, Entry]]
    warnings: Tuple[str, ...]
    custom: Mapping[Tuple[str, str], Entry] = field(default_factory=dict)
    notes: Mapping[Tuple[str, str], Tuple[str, ...]] = field(default_factory=dict)
    ignored: Tuple[Tuple[Entry, str], ...] = ()


def sort_keys(document: Document) -> Keys:
    """Every key of the document in its place. Raises `ConfigError` for the first one that is not a setting."""
    sorting = _Sorting(document)
    for entry in document.entries:
        sorting.add(entry)
    for entry, why in document.left_out:
        sorting.leave(why, entry)
    return sorting.result()


class _Sorting:
    """Collects one document's keys."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._settings: Dict[Tuple[str, str], Entry] = {}
        self._renamed: Dict[Tuple[str, str], Entry] = {}
        self._clients: Dict[Tuple[str, str], Dict[str, Entry]] = {}
        self._warnings: List[str] = list(document.warnings)
        self._custom: Dict[Tuple[str, str], Entry] = {}
        self._without_effect: Dict[str, List[str]] = {}
        self._notes: Dict[Tuple[str, str], Tuple[str, ...]] = {}
        self._ignored: List[Tuple[Entry, str]] = []

    def add(self, entry: Entry) -> None:
        """Put one entry where it belongs."""
        if entry.scope and "->" not in entry.scope:
            self._add_of_cluster(entry)
        elif class_key(entry.key) is not None:
            self._custom[(entry.scope, entry.key)] = entry
        elif not self._add_setting(entry, entry.key) and not self._add_client(entry):
            self._add_renamed(entry)

    def result(self) -> Keys:
        """All that was added, with keys that have no effect gathered into one warning for each reason."""
        gathered = [f"{', '.join(dict.fromkeys(keys))}: {why}" for why, keys in self._without_effect.items()]
        # A key under its right name beats an old or misspelt one, whichever comes first in the file.
        settings, warnings = {**self._renamed, **self._settings}, (*self._warnings, *gathered)
        return Keys(settings, self._clients, warnings, self._custom, self._notes, tuple(self._ignored))

    def _add_setting(self, entry: Entry, name: str) -> bool:
        """Take a setting under `name`, or a key that is known to be unused; false where it is neither."""
        setting = BY_NAME.get(name)
        if setting is not None and entry.key == "name" and entry.scope:
            self.leave("ignored: connectors have no names here", entry)
        elif setting is not None and setting.client_key is None:
            self._check_level(setting, entry)
            kept = self._settings if name == entry.key else self._renamed
            kept[(entry.scope, name)] = self._tidied(entry, setting)
        else:
            row = unused(name)
            if row is None:
                return False
            self._add_unused(row, entry)
        return True

    def _check_level(self, setting: Setting, entry: Entry) -> None:
        if setting.level == TOP and entry.scope:
            raise config_error(f"{setting.name} is for the whole file; write it without {entry.scope}", entry.place)

    def _add_unused(self, row: Unused, entry: Entry) -> None:
        if row.refuses(entry.key, entry.text):
            raise config_error(f"{entry.written} cannot be honoured: {row.reason}; take it out", entry.place)
        self.leave(f"ignored: {row.reason}", entry)

    def _add_client(self, entry: Entry) -> bool:
        """Take a client property of a flow (`A->B.consumer.x`) or of everything (`ssl.x`, `consumer.x`)."""
        for prefix in _FLOW_PREFIXES:
            if entry.key.startswith(prefix + "."):
                if not entry.scope and self._document.dialect == MM2:
                    self._warn(
                        entry,
                        f"{entry.key}: MirrorMaker 2 drops it without a cluster or flow before it; here it is used for "
                        f"all ({entry.place})",
                    )
                return self._keep_client(entry, prefix, entry.key[len(prefix) + 1 :])
        if entry.scope or not _BARE_CLIENT_KEY.fullmatch(entry.key):
            return False
        return self._keep_client(entry, "", entry.key)

    def _add_of_cluster(self, entry: Entry) -> None:
        """Take a key of a cluster: a client property, unless it belongs to a Connect worker or to a flow."""
        role, _, rest = entry.key.partition(".")
        row = unused(entry.key)
        setting = BY_NAME.get(entry.key)
        if setting is not None and setting.client_key is None:
            self._add_misplaced(setting, entry)
        elif row is not None:
            self._add_unused(row, entry)
        elif role in ROLES and rest:
            self._keep_client(entry, role, rest)
        else:
            self._keep_client(entry, "", entry.key)

    def _add_misplaced(self, setting: Setting, entry: Entry) -> None:
        where = f"A->B.{setting.name}" if setting.level == FLOW else setting.name
        sentence = f"{entry.written} has no effect, since it is not a setting of a cluster; write {where}"
        if self._document.dialect != MM2:
            raise config_error(sentence, entry.place)
        self._warnings.append(f"{sentence} ({entry.place})")
        self._ignored.append((entry, sentence))

    def _add_renamed(self, entry: Entry) -> None:
        """Take a key under the name it should have, or refuse it."""
        name, why = _meant(entry.key)
        if name is None:
            raise self._unknown(entry)
        self._warn(entry, f"{entry.written} {why} {name} and is read as that ({entry.place})")
        if entry.key.lower().endswith(".ms") and name.endswith(".seconds"):
            entry = replace(entry, value=_in_seconds(entry))
        self._add_setting(entry, name)

    def _keep_client(self, entry: Entry, prefix: str, key: str) -> bool:
        if key not in CLIENT_PROPERTIES:
            like = nearest(key, CLIENT_PROPERTIES, cutoff=0.9)
            if like:
                right = entry.written[: len(entry.written) - len(key)] + like
                sentence = f"{entry.written} is not a Kafka client property; did you mean {right}?"
                raise config_error(sentence, entry.place)
            self._warn(entry, f"{entry.written} is no client property that Kafka knows; passed on ({entry.place})")
        if not reaches_the_copy(key):
            self._without_effect.setdefault(_ONLY_SPARKS, []).append(entry.written)
        if not _HOLDS_ANYTHING.search(key):
            entry = self._tidied(entry, BY_NAME["clusters"])
        self._clients.setdefault((entry.scope, prefix), {})[key] = entry
        return True

    def _tidied(self, entry: Entry, setting: Setting) -> Entry:
        # In SQL a quote or a '#' is part of what is said.
        if self._document.dialect != MM2 or setting.kind in (CONDITION, SELECT_LIST):
            return entry
        tidied, warnings = tidy(entry, setting)
        self._warn(entry, *warnings)
        return tidied

    def leave(self, why: str, entry: Entry) -> None:
        """Take an entry that has no effect, and why."""
        self._without_effect.setdefault(why, []).append(entry.written)
        self._ignored.append((entry, why))

    def _warn(self, entry: Entry, *sentences: str) -> None:
        self._warnings += sentences
        place = (entry.scope, entry.key)
        self._notes[place] = (*self._notes.get(place, ()), *sentences)

    def _unknown(self, entry: Entry) -> Exception:
        if entry.key in REMOVED:
            return config_error(f"{entry.written} is gone: {REMOVED[entry.key]}", entry.place)
        before = f"{entry.scope}." if entry.scope else ""
        names = [before + name for name, setting in BY_NAME.items() if not before or setting.level == FLOW]
        if not before:
            names += [f"{alias}.bootstrap.servers" for alias in self._document.aliases]
        # Said of MirrorMaker 1's option, and read by no MirrorMaker 2.
        like = nearest(re.sub(r"s?\.whitelist$", "s", entry.written), names)
        if _BARE_CLIENT_KEY.fullmatch(entry.key):
            source = entry.scope.partition("->")[0]
            advice = f"client properties belong to a cluster: {source}.{entry.key}"
        else:
            advice = f"did you mean {like}?" if like else "docs/reference/settings.md lists them all"
        return config_error(f"{entry.written} is not a setting; {advice}", entry.place)


def _meant(key: str) -> Tuple[Optional[str], str]:
    """The setting that a key stands for, and how: an old name, a known slip, or other capitals."""
    lower = key.lower()
    if key in OLD_NAMES:
        return OLD_NAMES[key], "is the old name of"
    if lower in BY_NAME or unused(lower):
        return lower, "has capitals; it should be"
    in_seconds = re.sub(r"\.ms$", ".seconds", lower)
    for slip in (MISSPELLINGS.get(lower), OLD_NAMES.get(lower), lower + ".enabled", in_seconds):
        if slip in BY_NAME:
            return slip, "is not a setting; it should be"
    return None, ""


def _in_seconds(entry: Entry) -> str:
    text = entry.text.strip()
    if not re.fullmatch(r"\d{1,12}", text):
        raise config_error(f"{entry.written} must be a whole number of milliseconds, not {entry.shown}", entry.place)
    return f"{int(text) / 1000:g}"
