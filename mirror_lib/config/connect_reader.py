"""Reads Kafka Connect's files of MirrorMaker connectors (JSON or standalone `.properties`) into one `Document`.

Connectors with the same source and target become one flow `A->B`. Each connector counts only for its own part of the
flow, as in Connect; a part without a connector is off. A checkpoint or heartbeat connector alone makes a flow that
copies nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import yaml

from mirror_lib.config.document import CONNECT, Document, Entry, config_error, last_of_each
from mirror_lib.config.mm2_reader import tidied
from mirror_lib.config.settings import BY_NAME, COPY, EMIT_HEARTBEATS, ENABLED, SOURCE_ALIAS, unused
from mirror_lib.config.sorted_keys import OF_THE_COPY, reaches_the_copy
from mirror_lib.config.values import TOP, items

SOURCE = "MirrorSourceConnector"
CHECKPOINT = "MirrorCheckpointConnector"
HEARTBEAT = "MirrorHeartbeatConnector"
KINDS = (SOURCE, CHECKPOINT, HEARTBEAT)
# Of any other class: a Connect cluster has more connectors than MirrorMaker's.
OTHER = ""

CLASS = "connector.class"
# By the start of what Python says of a file that is no JSON.
_ADVICE = {
    "Extra data": "put several connectors into a list: [ …, … ]",
    "Invalid control character": "close the quotes, and write \\n for the end of a line in a text",
    "Invalid \\escape": "write \\\\ for a backslash",
    "": "leave out comments, and a comma before a closing bracket",
}
# Connect's REST answers these too. A state other than RUNNING is an order to Connect, not to this mirror.
_OTHER_FIELDS = ("name", "tasks", "type", "initial_state")


@dataclass(frozen=True)
class Connector:
    """One connector: its class without the package, or `OTHER`, and its keys with no scope yet. `place` is where it
    begins; where it is another's, that of its class."""

    kind: str
    entries: Mapping[str, Entry]
    place: str

    def text(self, key: str, default: str = "") -> str:
        entry = self.entries.get(key)
        return default if entry is None else entry.text.strip()


def read_connectors(content: bytes, path: str) -> Tuple[Connector, ...]:
    """The connectors of a JSON file: `{"name": …, "config": {…}}` as Connect's POST takes it, the flat config as its
    PUT does, a list of either, or what `GET /connectors?expand=info` answers. Raises `ConfigError` with the line.
    """
    configs = list(_configs(_parsed(content, path), path))
    if not configs:
        raise config_error("the file has no connector; give the JSON of one, or a list of them", path)
    return tuple(_connector(_entries(each, path)) for each in configs)


def connector_of_properties(found: Sequence[Entry]) -> Optional[Connector]:
    """The connector of a standalone worker's file, or `None` where the file is no connector's."""
    entries = last_of_each(found)
    # A file with clusters and their flows is a dedicated MirrorMaker's, whatever else but a connector's servers it has.
    dedicated = "clusters" in entries and any("->" in key for key in entries)
    if CLASS not in entries or (dedicated and f"source.cluster.{_SERVERS}" not in entries):
        return None
    return _connector({key: tidied(entry) for key, entry in entries.items()})


def _parsed(content: bytes, path: str) -> Optional[yaml.Node]:
    """The nodes of a JSON file, which know their lines."""
    try:
        text = content.decode("utf-8-sig")
        json.loads(text)
        # Blanks between JSON's tokens may be tabs, and none is inside one.
        return yaml.compose(text.replace("\t", " "), Loader=yaml.SafeLoader)
    except UnicodeDecodeError:
        raise config_error("the file must be UTF-8", path) from None
    except RecursionError:
        raise config_error("not a connector: its maps are nested too deeply", path) from None
    except json.JSONDecodeError as error:
        advice = next((each for start, each in _ADVICE.items() if error.msg.startswith(start)), _ADVICE[""])
        raise config_error(f"not valid JSON: {error.msg}; {advice}", f"{path}:{error.lineno}") from None
    except yaml.YAMLError:
        raise config_error("the file has a control character, or a key on another line than its colon", path) from None


def _pairs(node: yaml.Node, path: str) -> Iterator[Tuple[str, str, yaml.Node]]:
    """Key, place and value; none where the node is no map."""
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        yield key.value, f"{path}:{key.start_mark.line + 1}", value


def _map(node: yaml.Node, path: str) -> Dict[str, Tuple[str, yaml.Node]]:
    """Place and value by key."""
    return {key: (place, value) for key, place, value in _pairs(node, path)}


def _configs(node: Optional[yaml.Node], path: str) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _configs(item, path)
        return
    if not isinstance(node, yaml.MappingNode):
        raise config_error("the file must hold a connector, or a list of connectors", path)
    inside = _map(node, path)
    infos = [_map(value, path).get("info") for _, value in inside.values()]
    if "config" in inside:
        for key, (place, _) in inside.items():
            if key != "config" and key not in _OTHER_FIELDS:
                raise config_error(f"{key} is next to config; move it into config", place)
        if not isinstance(inside["config"][1], yaml.MappingNode):
            raise config_error("config must be a map", inside["config"][0])
        yield inside["config"][1]
    elif inside and all(infos):
        for _, info in filter(None, infos):
            yield from _configs(info, path)
    else:
        yield node


def _entries(node: yaml.Node, path: str) -> Mapping[str, Entry]:
    given = _map(node, path)
    if CLASS not in given:
        begins = next((place for place, _ in given.values()), path)
        holder = next((key for key, (_, value) in given.items() if CLASS in _map(value, path)), None)
        advice = f"give the map under {holder} as a file of its own" if holder else f"add it, for example {SOURCE}"
        raise config_error(f"the connector has no {CLASS}; {advice}", begins)
    entries = []
    for key, place, value in _pairs(node, path):
        if not isinstance(value, yaml.ScalarNode):
            raise config_error(f"{key} must be one text", place)
        # To Connect a key that is null is not given.
        if value.style is not None or value.value != "null":
            # JSON's escapes are UTF-16; each is a character to YAML.
            text = value.value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
            entries.append(Entry("", key, text, place))
    return last_of_each(entries)


def _connector(entries: Mapping[str, Entry]) -> Connector:
    begins = next(iter(entries.values())).place
    # Connect also takes the class without its package, and that without its last word.
    name = entries[CLASS].text.strip().rpartition(".")[2]
    kind = next((kind for kind in KINDS if name in (kind, kind[: -len("Connector")])), OTHER)
    return Connector(kind, entries, entries[CLASS].place if kind == OTHER else begins)


_TARGET_ALIAS = "target.cluster.alias"
_IDENTIFIES = (CLASS, "name", "clusters", SOURCE_ALIAS, _TARGET_ALIAS)
_SERVERS = "bootstrap.servers"
_LOGIN, _LOGIN_WORD = "sasl.jaas.config", re.compile(r'"[^"]*"|[^\s"]+')

# The connectors that read a key, by its start. Whatever stands here under none is the source connector's. What two
# read must be the same in both, as MirrorMaker wants it.
_CLIENTS = tuple(f"{side}{role}." for side in ("", "source.", "target.") for role in ("consumer", "producer", "admin"))
_CLUSTERS = ("source.cluster.", "target.cluster.")
_READ_BY = (
    ((*_CLUSTERS, "replication.policy.", "admin.timeout.ms"), KINDS),
    (_CLIENTS, (SOURCE, CHECKPOINT)),
    (("groups", "group.", "refresh.groups.", "sync.group.", "emit.checkpoints.", "checkpoints.topic."), (CHECKPOINT,)),
    (("emit.heartbeats.", "heartbeats.topic."), (HEARTBEAT,)),
    (("offset-syncs.topic.location", "topic.filter.class", "topics", "topic.blacklist"), (SOURCE, CHECKPOINT)),
)
_TOPICS = ("topics", "topic.blacklist")
# What a missing connector switches off.
_PARTS = {
    CHECKPOINT: ("emit.checkpoints.enabled", "sync.group.offsets.enabled"),
    HEARTBEAT: ("emit.heartbeats.enabled",),
}

Pair = Tuple[str, str]


def join_connectors(connectors: Sequence[Connector], path: str) -> Document:
    """All connectors as one document; `path` names their files. Raises `ConfigError` if they contradict each other."""
    others = [connector for connector in connectors if connector.kind == OTHER]
    if len(others) == len(connectors):
        sentence = f"{CLASS} {others[0].entries[CLASS].shown} is not MirrorMaker's; only {', '.join(KINDS)} are read"
        if "Replicator" in others[0].text(CLASS):
            sentence += f"; for a {SOURCE} write src.kafka. as source.cluster., dest.kafka. as target.cluster."
        raise config_error(sentence, others[0].place)
    pairs: Dict[Pair, Dict[str, Connector]] = {}
    for connector in (each for each in connectors if each.kind != OTHER):
        given = pairs.setdefault(_pair(connector), {})
        if connector.kind in given:
            raise config_error(
                f"{'->'.join(_pair(connector))} has two of {connector.kind}, the first at "
                f"{given[connector.kind].place}; join them, or run each with a configuration and a name of its own",
                connector.place,
            )
        given[connector.kind] = connector
    beats_alone = all(each.kind in (HEARTBEAT, OTHER) or not _is_on(each) for each in connectors)
    whole_file: Dict[str, Entry] = {}
    entries: List[Entry] = []
    for pair, given in pairs.items():
        entries += _entries_of_flow("->".join(pair), given, beats_alone, whole_file)
    for named in (connector.entries[CLASS] for connector in others):
        entries.append(replace(named, ignored=f"{named.shown} is not MirrorMaker's connector"))
    aliases = tuple(dict.fromkeys(alias for pair in pairs for alias in pair))
    return Document(path, CONNECT, aliases, (*whole_file.values(), *entries))


def _is_on(connector: Connector) -> bool:
    """A heartbeat connector does not heed `enabled` in Connect."""
    key = EMIT_HEARTBEATS if connector.kind == HEARTBEAT else ENABLED
    return connector.text(key, "true").lower() != "false"


def _pair(connector: Connector) -> Pair:
    if SOURCE_ALIAS not in connector.entries:
        raise config_error(f"{connector.kind} has no {SOURCE_ALIAS}; name the source cluster", connector.place)
    # A blank one counts in names of topics alone. The connectors have a default for the target.
    return connector.text(SOURCE_ALIAS) or "source", connector.text(_TARGET_ALIAS) or "target"


def _entries_of_flow(
    scope: str, connectors: Mapping[str, Connector], beats_alone: bool, whole_file: Dict[str, Entry]
) -> Iterator[Entry]:
    """The keys of one pair's connectors. Those for the whole file go into `whole_file`."""
    copies = SOURCE in connectors and _is_on(connectors[SOURCE])
    taken = {entry.key: entry for entry in _switches(scope, connectors, beats_alone)}
    switched = frozenset(taken)
    for connector in (connectors[kind] for kind in KINDS if kind in connectors):
        for bare in (*connector.entries.values(), *_policy_by_default(connector, connectors)):
            entry = replace(bare, scope=scope)
            if bare.key in _IDENTIFIES or bare.key in switched:
                continue
            if bare.key in BY_NAME and BY_NAME[bare.key].level == TOP:
                _take(whole_file, bare)
            elif unused(bare.key) is not None or (
                bare.key.startswith(_CLUSTERS) and not reaches_the_copy(bare.key.split(".", 2)[2])
            ):
                # Without meaning here, so it may differ between connectors; it is named once.
                taken.setdefault(bare.key, entry)
            elif not _reads(connector.kind, bare.key):
                # Only the tasks of a copy are chosen here.
                if bare.key != "tasks.max":
                    yield replace(entry, ignored=f"{connector.kind} does not read it")
            elif connector.kind == CHECKPOINT and SOURCE in connectors and bare.key.startswith(_TOPICS):
                if entry.text.strip() != connectors[SOURCE].text(bare.key):
                    yield replace(entry, ignored="groups are translated on the topics that are copied")
            elif connector.kind == CHECKPOINT and bare.key.endswith(OF_THE_COPY):
                yield replace(entry, ignored=f"it is for what {SOURCE} reads")
            elif connector.kind == CHECKPOINT and copies and bare.key.startswith(_CLIENTS):
                if entry.text.strip() != connectors[SOURCE].text(bare.key):
                    yield replace(entry, ignored=f"one mirror has the clients of one connector, of {SOURCE}")
            else:
                _take(taken, entry)
    for entry in taken.values():
        if entry.key.endswith(_SERVERS) and ";" in entry.text:
            remark = f"{entry.written}: ';' between servers is read as ','"
            entry = replace(entry, value=entry.text.replace(";", ","), remarks=(remark,))
        yield entry


def _switches(scope: str, connectors: Mapping[str, Connector], beats_alone: bool) -> Iterator[Entry]:
    """What turns off each part that has no connector, or one that is switched off; and the alias, if it is blank."""
    first, on = next(iter(connectors.values())), {kind for kind, each in connectors.items() if _is_on(each)}
    runs = SOURCE in on or CHECKPOINT in on or (beats_alone and HEARTBEAT in on)
    words = {ENABLED: "true" if runs else "false"}
    if runs and SOURCE not in on:
        words[COPY] = "false"
    if HEARTBEAT in on and not runs and not connectors[HEARTBEAT].text(EMIT_HEARTBEATS):
        # A connector of its own asks for heartbeats; a pair that is not copied has none unless it is asked for.
        words[EMIT_HEARTBEATS] = "true"
    words.update({key: "false" for kind, keys in _PARTS.items() if kind not in on for key in keys})
    yield from (Entry(scope, key, word, first.place) for key, word in words.items())
    if not first.text(SOURCE_ALIAS):
        yield replace(first.entries[SOURCE_ALIAS], scope=scope, value="")


def _policy_by_default(connector: Connector, connectors: Mapping[str, Connector]) -> Iterator[Entry]:
    """The defaults of what names topics, where only the other one of the two connectors that name topics gives it."""
    given = {key for kind, each in connectors.items() if kind != HEARTBEAT for key in each.entries}
    for key in ("replication.policy.class", "replication.policy.separator") if connector.kind != HEARTBEAT else ():
        if key in given and key not in connector.entries:
            yield Entry("", key, BY_NAME[key].default, connector.place)


def _reads(kind: str, key: str) -> bool:
    return kind in next((kinds for starts, kinds in _READ_BY if key.startswith(starts)), (SOURCE,))


def _normal(entry: Entry) -> str:
    """A value in a form that can be compared: lists in order, classes without their package, logins without blanks."""
    text = entry.text.strip()
    if entry.key.endswith(_SERVERS):
        return ",".join(sorted(items(text.replace(";", ","))))
    if entry.key.endswith(_LOGIN):
        return " ".join(_LOGIN_WORD.findall(text))
    return text.rpartition(".")[2] if entry.key.endswith(".class") else text


def _take(taken: Dict[str, Entry], entry: Entry) -> None:
    """Take a key once. Raises `ConfigError` where another connector gave it another value."""
    first = taken.setdefault(entry.key, entry)
    if _normal(first) != _normal(entry):
        sentence = f"{entry.written} is {entry.shown}, and {first.shown} at {first.place}; give all the same"
        raise config_error(sentence, entry.place)
