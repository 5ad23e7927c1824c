"""Decides which configs a remote topic gets from its source topic, and which of them an existing topic would refuse."""

from __future__ import annotations

from typing import FrozenSet, Iterable, Mapping

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import TopicConfigs
from mirror_lib.topics.filters import config_excluded

NO_LIMIT = str(2**63 - 1)
KAFKA_DEFAULT_MAX_MESSAGE_BYTES = 1048588
MAX_MESSAGE_BYTES = "max.message.bytes"
TIMESTAMP_TYPE, KEEPS_TIMESTAMPS = "message.timestamp.type", "CreateTime"
TIMESTAMP_BOUNDS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
OLD_TIMESTAMP_BOUND = "message.timestamp.difference.max.ms"
TIMESTAMP_CONFIGS = (TIMESTAMP_TYPE, *TIMESTAMP_BOUNDS, OLD_TIMESTAMP_BOUND)
# What a topic may have only where its brokers have tiered storage (KIP-405), and what says that it uses that.
REMOTE_STORAGE = "remote.storage.enable"
TIERED_CONFIGS = (
    *(REMOTE_STORAGE, "local.retention.ms", "local.retention.bytes"),
    *("remote.log.copy.disable", "remote.log.delete.on.disable"),
)

# What decides whether a topic admits a batch: all that has to be read of topics that already exist.
ADMISSION_CONFIGS = (MAX_MESSAGE_BYTES, *TIMESTAMP_CONFIGS)


def creation_configs(flow: ReplicationFlow, source_configs: TopicConfigs) -> Mapping[str, str]:
    """The configs that MM2 gives a new remote topic: the source's own, and its defaults if `use.defaults.from=source`.

    Left out: read-only, sensitive and static broker configs, and what the flow's filter of topic configs excludes.
    `remote.topic.configs` count before the source's.
    """
    copied = {
        key: entry.value
        for key, entry in source_configs.items()
        if entry.value is not None
        and (not entry.is_default or flow.use_defaults_from == "source")
        and not (entry.is_read_only or entry.is_sensitive or entry.source == "STATIC_BROKER_CONFIG")
        and not config_excluded(flow, key)
    }
    return {**copied, **dict(flow.remote_topic_configs)}


def admission_configs(flow: ReplicationFlow, source_configs: TopicConfigs, known: FrozenSet[str]) -> Mapping[str, str]:
    """What a new remote topic needs to admit whatever its source ever admitted, with timestamps kept."""
    # All that arrives was admitted by the source once: when it was younger, by another clock, under bounds that may
    # have changed since. So no bound of the remote topic may judge it again.
    bounds = [key for key in TIMESTAMP_BOUNDS if key in known] or [OLD_TIMESTAMP_BOUND]
    configs = {key: NO_LIMIT for key in bounds if key in known}
    configs[TIMESTAMP_TYPE] = KEEPS_TIMESTAMPS
    source_limit = _number(source_configs, MAX_MESSAGE_BYTES, default=0)
    # Inherited from the source's brokers, it is not among the topic's own configs, and the target's may be smaller.
    if source_limit > KAFKA_DEFAULT_MAX_MESSAGE_BYTES and not config_excluded(flow, MAX_MESSAGE_BYTES):
        configs[MAX_MESSAGE_BYTES] = str(source_limit)
    return configs


def is_tiered(configs: TopicConfigs) -> bool:
    return REMOTE_STORAGE in configs and configs[REMOTE_STORAGE].value == "true"


def admission_notes(source: TopicConfigs, remote: TopicConfigs) -> Iterable[str]:
    """What an existing remote topic would refuse or change although the source holds it."""
    limit, no_limit = _number(remote, MAX_MESSAGE_BYTES, default=0), int(NO_LIMIT)
    if 0 < limit < _number(source, MAX_MESSAGE_BYTES, default=0):
        yield (
            f"{MAX_MESSAGE_BYTES} {limit} is below the source's {_number(source, MAX_MESSAGE_BYTES, default=0)}: "
            "larger batches are split, a larger record stops its partition"
        )
    if TIMESTAMP_TYPE in remote and remote[TIMESTAMP_TYPE].value == "LogAppendTime":
        yield f"{TIMESTAMP_TYPE} is LogAppendTime: the timestamps of records are not kept"
    before, after = TIMESTAMP_BOUNDS
    # Records only grow older on their way, so any lower bound can refuse what the source admitted.
    for key in (before, OLD_TIMESTAMP_BOUND):
        if _number(remote, key, default=no_limit) < no_limit:
            yield f"{key} {_number(remote, key, default=no_limit)}: records older than that stop their partition"
    if _number(remote, after, default=no_limit) < _number(source, after, default=no_limit):
        yield (
            f"{after} {_number(remote, after, default=no_limit)} is stricter than the source's: "
            "records further in the future stop their partition"
        )


def _number(configs: TopicConfigs, key: str, default: int) -> int:
    value = configs[key].value if key in configs else None
    return default if value is None else int(value)
