"""Reads MirrorMaker 1's command line and client files into a `Document`: one flow from each source to one target.

`OPTIONS` holds what becomes of every option; the reference page and `mirror mm1 --help` are made from it.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, replace
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.config.client_names import CLIENT_PROPERTIES
from mirror_lib.config.document import (
    MM1,
    Document,
    Entry,
    Value,
    config_error,
    content_of,
    last_of_each,
    nearest,
    read_properties,
)
from mirror_lib.config.model import MM1_POLICY, MM2_TRIGGER, REFUSE
from mirror_lib.config.settings import COUNTS_DIFFER, ENABLED
from mirror_lib.config.sorted_keys import reaches_the_copy
from mirror_lib.errors import ConfigError

SUPPORTED, DIFFERS, IGNORED = "supported", "differs", "ignored"
REFUSED = "refused"


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
           "read as `tasks.max`: one task copies many partitions at once, so a few are enough; at most 64"),
    Option("num.producers", "N", "no meaning", IGNORED, "each lane has a producer of its own"),
    Option("queue.size", "N", "no meaning", IGNORED, _COPIED),
    Option("abort.on.send.fail", "true|false", "whether the run fails where the target rejects a record (default "
           "true); with false the record is skipped, with an incident",
           other_names=("abort.on.send.failure", "abortOnSendFail"), implied="true"),
    Option("offset.commit.interval.ms", "MS", "how often progress is committed to the source under the consumer's "
           "group.id (default 60000)"),
    Option("message.handler", "CLASS", "refused", REFUSED,
           "no Java class runs here, and records would be copied without it"),
    Option("message.handler.args", "TEXT", "no meaning without a handler", IGNORED, "it is for a message handler"),
    Option("consumer.rebalance.listener", "CLASS", "no meaning", IGNORED,
           "partitions do not move between consumers here"),
    Option("rebalance.listener.args", "TEXT", "no meaning", IGNORED, "it is for a rebalance listener"),
    Option("new.consumer", "", "no meaning", IGNORED, "there is no other consumer"),
    Option("help", "", "show all options"),
)

# By file: names before Kafka 0.9 and today's names.
RENAMED: Mapping[str, Mapping[str, str]] = {
    "consumer.config": {"groupid": "group.id", "zk.groupid": "group.id", "autooffset.reset": "auto.offset.reset"},
    "producer.config": {"broker.list": "bootstrap.servers", "metadata.broker.list": "bootstrap.servers"},
}
RESET = "auto.offset.reset"
OLD_RESETS: Mapping[str, str] = {"smallest": "earliest", "largest": "latest"}
_ZOOKEEPER = re.compile(r"(zk|zookeeper)\..*")
NOT_READ = "batches are copied as they are, progress is in the ledger, sizes, waits and acknowledgements are set here"


TARGET = "target"
# By option name, in the order of the command line.
Given = Mapping[str, Sequence[str]]

# What MirrorMaker 1 did not do, and that it kept names and let others write to its topics.
_AS_MM1: Mapping[str, str] = {
    "replication.policy.class": MM1_POLICY,
    "replication.factor": "-1",
    "heartbeats.replication.enabled": "false",
    "sync.topic.configs.enabled": "false",
    "sync.topic.acls.enabled": "false",
    "emit.checkpoints.enabled": "false",
    "emit.heartbeats.enabled": "false",
    "shared.remote.topics": "true",
    COUNTS_DIFFER: REFUSE,
    "trigger": MM2_TRIGGER,
}
_COMMA_IN_BRACES = re.compile(r"\{[^}]*,[^}]*\}")


def read_mm1(given: Given, state: Optional[str] = None, stray: Sequence[str] = ()) -> Document:
    """Nothing but the files is read, and references in them are not replaced. `stray` are words of no option.

    Raises `ConfigError`.
    """
    _check(given)
    idle = (each for each in OPTIONS if each.status == IGNORED and given.get(each.name))
    entries = [Entry("", word, "", "the command line", ignored="it belongs to no option") for word in stray]
    entries += [Entry("", f"--{each.name}", "", f"--{each.name}", ignored=each.reason) for each in idle]
    paths, (producer,) = given["consumer.config"], given["producer.config"]
    sources = {f"source{number if number > 1 else ''}": path for number, path in enumerate(paths, start=1)}
    for alias, path in sources.items():
        entries += _source(alias, path)
    group = next(entry.text for entry in entries if entry.key == "commit.source.group")
    entries += _settings(given, group, state)
    target = _client_keys("producer.config", producer, TARGET)
    entries += [entry for entry in target if entry.key != "group.id"]
    return Document(", ".join([*paths, producer]), MM1, (*sources, TARGET), tuple(entries))


def topic_pattern(text: str) -> str:
    """The regex that MirrorMaker 1 makes of a list: commas become |, blanks and quotes round it go."""
    if _COMMA_IN_BRACES.search(text):
        raise ConfigError("a comma is read as |, also within { }; write such a pattern without one")
    return text.strip().replace(",", "|").replace(" ", "").strip("\"'")


def _check(given: Given) -> None:
    for name in ("consumer.config", "producer.config"):
        if not given.get(name):
            raise ConfigError(f"--{name} is missing", "name a file of client settings, bootstrap.servers among them")
    if len(given["producer.config"]) > 1:
        raise ConfigError("--producer.config is given more than once", "there is one target: give it once")
    lists = [name for name in ("whitelist", "blacklist") if given.get(name)]
    if len(lists) != 1 or len(given[lists[0]]) != 1:
        raise ConfigError("give exactly one --whitelist (or --include) or --blacklist (or --exclude)")
    for option in (each for each in OPTIONS if each.status == REFUSED and given.get(each.name)):
        raise ConfigError(f"--{option.name} cannot be honoured: {option.reason}", "take it out")


def _settings(given: Given, group: str, state: Optional[str]) -> List[Entry]:
    option = "whitelist" if given.get("whitelist") else "blacklist"
    pattern = (topic_pattern(given[option][-1]),)
    wanted: Dict[str, Value] = {
        **_AS_MM1,
        "name": _mirror_name(group),
        "topics": pattern if option == "whitelist" else (".*",),
        "topics.exclude": () if option == "whitelist" else pattern,
    }
    entries = [Entry("", key, value, f"--{option}") for key, value in wanted.items()]
    options = (
        ("tasks.max", "num.streams", lambda text: text),
        ("on.error", "abort.on.send.fail", _on_error),
        ("commit.source.group.interval.seconds", "offset.commit.interval.ms", _seconds),
    )
    for key, name, meant in options:
        if given.get(name):
            entries.append(Entry("", key, meant(given[name][-1]), f"--{name}"))
    return entries if state is None else [*entries, Entry("", "state", state, "--state")]


def _on_error(text: str) -> str:
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"--abort.on.send.fail must be true or false, not '{text}'")
    return "fail" if text.lower() == "true" else "skip"


def _seconds(text: str) -> str:
    if not re.fullmatch(r"\d{1,12}", text):
        raise ConfigError(f"--offset.commit.interval.ms must be a whole number of milliseconds, not '{text}'")
    return f"{max(1, int(text)) / 1000:g}"


def _mirror_name(group: str) -> str:
    """Processes of one group are one mirror: each must be able to fence the others, and no other group's."""
    legal = re.sub(r"[^A-Za-z0-9._-]", "_", group)
    return f"mm1-{group}" if legal == group else f"mm1-{legal}-{zlib.crc32(group.encode()):08x}"


def _client_keys(option: str, path: str, alias: str) -> List[Entry]:
    """The keys of a client file under today's names, with the cluster `alias` in front. A name of today beats an
    older one; a key that means nothing here is ignored."""
    found = read_properties(content_of(path), path)
    keys: Dict[str, Entry] = {}
    ignored: List[Entry] = []
    for entry in sorted(last_of_each(found).values(), key=lambda each: each.key not in RENAMED[option]):
        name = RENAMED[option].get(entry.key, entry.key)
        if reaches_the_copy(name):
            keys[name] = replace(entry, scope=alias, key=name)
        else:
            like = nearest(name, filter(reaches_the_copy, CLIENT_PROPERTIES), cutoff=0.9)
            ignored.append(replace(entry, ignored=NOT_READ + (f"; did you mean {like}?" if like else "")))
    if "bootstrap.servers" not in keys:
        keeper = next((entry.place for entry in found if _ZOOKEEPER.fullmatch(entry.key)), None)
        why = "has no bootstrap.servers" if keeper is None else "names ZooKeeper only, which is not asked"
        side = "source" if option == "consumer.config" else "target"
        sentence = f"the file {why}; add bootstrap.servers = host:port of the {side}'s brokers"
        raise config_error(sentence, keeper or path)
    return [*keys.values(), *ignored]


def _source(alias: str, path: str) -> Iterator[Entry]:
    """The source cluster of a consumer's file, and the flow that begins where its group stands, and commits to it."""
    keys = {entry.key: entry for entry in _client_keys("consumer.config", path, alias)}
    given = keys.pop("group.id", None)
    group = "" if given is None else given.text.strip()
    if given is None or not group:
        raise config_error("the file has no group.id; add it, since progress is kept under that name", path)
    begins = "as in MirrorMaker 1, a partition without an offset of the group begins at its end"
    reset = keys.get(RESET) or Entry(alias, RESET, "latest", path, remarks=(f"{RESET} is not set: {begins}",))
    keys[RESET] = replace(reset, value=OLD_RESETS.get(reset.text.strip().lower(), reset.value))
    yield from keys.values()
    flow = {ENABLED: "true", "start.position": f"group {group}", "commit.source.group": group}
    yield from (Entry(f"{alias}->{TARGET}", key, value, given.place) for key, value in flow.items())
