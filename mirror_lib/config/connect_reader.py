"""Reads Kafka Connect's files of MirrorMaker connectors (JSON or standalone `.properties`) into one `Document`.

Connectors with the same source and target become one flow `A->B`. Each connector counts only for its own part of the
flow, as in Connect; a part without a connector is off. A checkpoint or heartbeat connector alone makes a flow that
copies nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import yaml

from mirror_lib.config.document import CONNECT, Document, Entry, config_error, read_properties
from mirror_lib.config.keys import CONVERTERS, unused
from mirror_lib.config.model import MM2_TOPICS_EXCLUDE
from mirror_lib.config.settings import BY_NAME, COPY, EMIT_HEARTBEATS, ENABLED, OTHER_NAMES, TOPICS_EXCLUDE
from mirror_lib.config.values import TOP, items

SOURCE = "MirrorSourceConnector"
CHECKPOINT = "MirrorCheckpointConnector"
HEARTBEAT = "MirrorHeartbeatConnector"
KINDS = (SOURCE, CHECKPOINT, HEARTBEAT)
# Of any other class: a Connect cluster has more connectors than MirrorMaker's.
OTHER = ""

CLASS = "connector.class"
# Connect's REST answers these too. A state other than RUNNING is an order to Connect, not to this mirror.
_OTHER_FIELDS = ("name", "tasks", "type", "initial_state")


@dataclass(frozen=True)
class Connector:
    """One connector: its class without the package, or `OTHER`, and its keys with no scope yet. `place` is where it
    begins; where it is another's, that of its class."""

    kind: str
    entries: Tuple[Entry, ...]
    place: str

    def entry(self, key: str) -> Optional[Entry]:
        return next((entry for entry in self.entries if entry.key == key), None)

    def text(self, key: str, default: str = "") -> str:
        entry = self.entry(key)
        return default if entry is None else entry.text.strip()


def read_connectors(content: bytes, path: str) -> Tuple[Connector, ...]:
    """The connectors of a JSON file: `{"name": …, "config": {…}}` as Connect's POST takes it, the flat config as its
    PUT does, a list of either, or what `GET /connectors?expand=info` answers. Raises `ConfigError` with the line.
    """
    configs = list(_configs(_parsed(content, path), path))
    if not configs:
        raise config_error("the file has no connector", path)
    return tuple(_connector(_entries(each, path), path) for each in configs)


def connector_of_properties(found: Sequence[Entry], path: str) -> Optional[Connector]:
    """The connector of a standalone worker's file, or `None` where the file is no connector's."""
    keys = {one.key for one in found}
    # A file with clusters and their flows is a dedicated MirrorMaker's, whatever else stands in it.
    if CLASS not in keys or ("clusters" in keys and any("->" in key for key in keys)):
        return None
    return _connector(_last(found), path)


def worker_of_properties(content: bytes, path: str) -> Tuple[Entry, ...]:
    """The keys of a standalone worker's own file. Raises `ConfigError` where the file is something else."""
    found = [] if path.lower().endswith((".yaml", ".yml")) else read_properties(content, path)
    if not any(one.key == _SERVERS for one in found) or any(one.key == "clusters" for one in found):
        sentence = "several files go together only where each holds connectors or is their worker's; this one does not"
        raise config_error(sentence, path)
    return tuple(_last(found))


def _last(found: Sequence[Entry]) -> List[Entry]:
    return list({one.key: one for one in found}.values())


def _parsed(content: bytes, path: str) -> Optional[yaml.Node]:
    """The nodes of a JSON file, which know their lines."""
    try:
        text = content.decode("utf-8-sig")
        json.loads(text)
        # Blanks between JSON's tokens may be tabs, and none is inside one.
        return yaml.compose(text.replace("\t", " "), Loader=yaml.SafeLoader)
    except UnicodeDecodeError:
        raise config_error("the file is not UTF-8", path) from None
    except RecursionError:
        raise config_error("not a connector: its maps are nested too deeply", path) from None
    except json.JSONDecodeError as error:
        raise config_error(f"not valid JSON: {error.msg}", f"{path}:{error.lineno}") from None
    except yaml.YAMLError:
        raise config_error("the file has a control character, or a key on another line than its colon", path) from None


def _map(node: yaml.Node, path: str) -> Dict[str, Tuple[str, yaml.Node]]:
    """Place and value by key; empty where the node is no map."""
    found: Dict[str, Tuple[str, yaml.Node]] = {}
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        place = f"{path}:{key.start_mark.line + 1}"
        if key.value in found:
            raise config_error(f"{key.value} is given twice", place)
        found[key.value] = place, value
    return found


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


def _entries(node: yaml.Node, path: str) -> List[Entry]:
    entries = []
    for key, (place, value) in _map(node, path).items():
        if not isinstance(value, yaml.ScalarNode):
            raise config_error(f"{key} must be one text", place)
        # To Connect a key that is null is not given.
        if value.style is not None or value.value != "null":
            # JSON's escapes are UTF-16; each is a character to YAML.
            text = value.value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
            entries.append(Entry("", key, text, place))
    return entries


def _connector(entries: List[Entry], path: str) -> Connector:
    given = next((entry for entry in entries if entry.key == CLASS), None)
    if given is None:
        raise config_error(f"the connector has no {CLASS}", entries[0].place if entries else path)
    # Connect also takes the class without its package, and that without its last word.
    name = given.text.strip().rpartition(".")[2]
    kind = next((kind for kind in KINDS if name in (kind, kind[: -len("Connector")])), OTHER)
    return Connector(kind, tuple(entries), given.place if kind == OTHER else entries[0].place)


_ALIASES = {"source": "source.cluster.alias", "target": "target.cluster.alias"}
# The connectors' own default; there is none for the source.
_DEFAULT_TARGET = "target"
_IDENTIFIES = (CLASS, "name", "clusters", *_ALIASES.values())
_SERVERS = "bootstrap.servers"
_SIDES = ("source.cluster.", "target.cluster.")

# The connectors that read a key, by its start. Whatever stands here under none is the source connector's. What two
# read must be the same in both, as MirrorMaker wants it.
_READ_BY = (
    ((*_SIDES, "replication.policy.", "admin.timeout.ms"), KINDS),
    (("groups", "group.", "refresh.groups.", "sync.group.", "emit.checkpoints.", "checkpoints.topic."), (CHECKPOINT,)),
    (("emit.heartbeats.", "heartbeats.topic."), (HEARTBEAT,)),
    (("offset-syncs.topic.location", "topic.filter.class"), (SOURCE, CHECKPOINT)),
)
_POLICY = ("replication.policy.class", "replication.policy.separator")
# By the checkpoint connector's own, groups that have no offset on any of these topics are left out.
_TOPICS = ("topics", "topics.exclude")
# What a missing connector switches off.
_SWITCHES = {
    CHECKPOINT: ("emit.checkpoints.enabled", "sync.group.offsets.enabled"),
    HEARTBEAT: ("emit.heartbeats.enabled",),
}

Pair = Tuple[str, str]


def join_connectors(connectors: Sequence[Connector], workers: Sequence[Sequence[Entry]], path: str) -> Document:
    """All connectors as one document, with the files of `workers`; `path` names the files. Raises `ConfigError` where
    they contradict one another.
    """
    others = [connector for connector in connectors if connector.kind == OTHER]
    if len(others) == len(connectors):
        sentence = f"{CLASS} {_class(others[0])} is not MirrorMaker's; only {', '.join(KINDS)} are read"
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
    flows = [_FlowEntries(pair, given, beats_alone, whole_file) for pair, given in pairs.items()]
    aliases = tuple(dict.fromkeys(alias for pair in pairs for alias in pair))
    entries = [*whole_file.values(), *(entry for flow in flows for entry in flow.entries())]
    left_out = [each for flow in flows for each in flow.left_out]
    for entry in (entry for worker in workers for entry in worker):
        # A worker's converter is for the connectors that have none of their own, its providers for all of them.
        alone = entry.key in CONVERTERS and not all(each.entry(entry.key) for each in connectors if each.kind == SOURCE)
        if alone or entry.key.startswith("config.providers"):
            entries.append(entry)
        else:
            left_out.append((entry, "it is the worker's"))
    corrected = [f"{_class(each)} is not MirrorMaker's connector; left out ({each.place})" for each in others]
    corrected += [sentence for flow in flows for sentence in flow.corrected]
    return Document(path, CONNECT, aliases, tuple(entries), corrected=tuple(corrected), left_out=tuple(left_out))


def _class(connector: Connector) -> str:
    entry = connector.entry(CLASS)
    return "" if entry is None else entry.shown


def _is_on(connector: Connector) -> bool:
    """A heartbeat connector does not heed `enabled` in Connect."""
    key = EMIT_HEARTBEATS if connector.kind == HEARTBEAT else ENABLED
    return connector.text(key, "true").lower() != "false"


def _pair(connector: Connector) -> Pair:
    if connector.entry(_ALIASES["source"]) is None:
        raise config_error(f"{connector.kind} has no {_ALIASES['source']}; name the source cluster", connector.place)
    # A blank one counts in names of topics alone.
    return connector.text(_ALIASES["source"]) or "source", connector.text(_ALIASES["target"]) or _DEFAULT_TARGET


class _FlowEntries:
    """The keys of one pair's connectors, sorted into the keys of the flow and of the whole file."""

    def __init__(
        self, pair: Pair, connectors: Mapping[str, Connector], beats_alone: bool, whole_file: Dict[str, Entry]
    ) -> None:
        self.left_out: List[Tuple[Entry, str]] = []
        self.corrected: List[str] = []
        self._scope = "->".join(pair)
        self._connectors = connectors
        self._taken: Dict[str, Entry] = {}
        self._switch(beats_alone)
        self._switched = frozenset(self._taken)
        for kind in (SOURCE, CHECKPOINT, HEARTBEAT):
            if kind in connectors:
                self._take_all(connectors[kind], whole_file)
        self._same_policy()

    def _switch(self, beats_alone: bool) -> None:
        """Turn off what has no connector, or one that is switched off."""
        on = {kind for kind, each in self._connectors.items() if _is_on(each)}
        place = next(iter(self._connectors.values())).place
        runs = SOURCE in on or CHECKPOINT in on or (beats_alone and HEARTBEAT in on)
        _take(self._taken, Entry(self._scope, ENABLED, "true" if runs else "false", place))
        if runs and SOURCE not in on:
            _take(self._taken, Entry(self._scope, COPY, "false", place))
        if HEARTBEAT in on and not runs and not self._connectors[HEARTBEAT].text(EMIT_HEARTBEATS):
            # A connector of its own asks for heartbeats; a pair that is not copied has none unless it is asked for.
            _take(self._taken, Entry(self._scope, EMIT_HEARTBEATS, "true", place))
        blank = next(iter(self._connectors.values())).entry(_ALIASES["source"])
        if blank is not None and not blank.text.strip():
            _take(self._taken, Entry(self._scope, blank.key, "", blank.place))
        for kind, keys in _SWITCHES.items():
            for key in () if kind in on else keys:
                _take(self._taken, Entry(self._scope, key, "false", place))

    def _take_all(self, connector: Connector, whole_file: Dict[str, Entry]) -> None:
        for bare in connector.entries:
            entry = replace(bare, scope=self._scope)
            if bare.key in _IDENTIFIES or bare.key in self._switched:
                continue
            if bare.key in BY_NAME and BY_NAME[bare.key].level == TOP:
                _take(whole_file, bare)
            elif unused(bare.key) is not None:
                # Without meaning here, so it may differ between connectors; it is named once.
                self._taken.setdefault(bare.key, entry)
            elif connector.kind == CHECKPOINT and OTHER_NAMES.get(bare.key, bare.key) in _TOPICS:
                if SOURCE in self._connectors:
                    self._check_topics(self._connectors[SOURCE].entries, entry)
                else:
                    _take(self._taken, entry)
            elif _reads(connector.kind, bare.key):
                _take(self._taken, entry)
            else:
                self.left_out.append((entry, f"{connector.kind} does not read it"))

    def entries(self) -> Iterator[Entry]:
        for entry in self._taken.values():
            if entry.key.endswith(_SERVERS) and ";" in entry.text:
                self.corrected.append(f"{entry.written}: ';' between servers is read as ',' ({entry.place})")
                entry = replace(entry, value=entry.text.replace(";", ","))
            yield entry

    def _same_policy(self) -> None:
        """A policy that only one of the two connectors sets is another name for the other one's topics."""
        both = [each for kind, each in self._connectors.items() if kind in (SOURCE, CHECKPOINT)]
        for key in _POLICY:
            default = BY_NAME[key].default
            given = [entry for entry in (each.entry(key) for each in both) if entry is not None]
            if len(both) == 2 and len(given) == 1 and _normal(given[0]) != default:
                raise config_error(
                    f"{self._scope}: {key} is {given[0].shown} in one connector and not given in the other, where it "
                    f"is '{default}'; give both the same",
                    given[0].place,
                )

    def _check_topics(self, of_source: Sequence[Entry], entry: Entry) -> None:
        """Groups are translated on the source connector's topics: fewer for the checkpoint connector cannot be had."""
        key = OTHER_NAMES.get(entry.key, entry.key)
        given = [each for each in of_source if OTHER_NAMES.get(each.key, each.key) == key]
        default = MM2_TOPICS_EXCLUDE if key == TOPICS_EXCLUDE else BY_NAME[key].default
        theirs, ours = (set(items(text)) for text in (given[0].text if given else default, entry.text))
        if theirs == ours:
            return
        more = ours == {default} if key == "topics" else ours <= theirs
        if more or not self._switched.isdisjoint(_SWITCHES[CHECKPOINT]):
            self.left_out.append((entry, "groups are translated on the topics that are copied"))
            return
        missing = f"not given in the {SOURCE}, where it is '{default}'"
        instead = f"{given[0].shown} at {given[0].place}" if given else missing
        raise config_error(
            f"{self._scope}: {entry.key} of the {CHECKPOINT} is {entry.shown}, and {instead}; groups are translated on "
            "the topics that are copied, so give both the same",
            entry.place,
        )


def _reads(kind: str, key: str) -> bool:
    return kind in next((kinds for starts, kinds in _READ_BY if key.startswith(starts)), (SOURCE,))


def _normal(entry: Entry) -> str:
    """A value in a form that can be compared: lists in order, classes without their package."""
    text = entry.text.strip()
    if entry.key.endswith(_SERVERS):
        return ",".join(sorted(items(text.replace(";", ","))))
    return text.rpartition(".")[2] if entry.key.endswith(".class") else text


def _take(taken: Dict[str, Entry], entry: Entry) -> None:
    """Take a key once. Raises `ConfigError` where another connector gave it another value."""
    first = taken.setdefault(entry.key, entry)
    if _normal(first) != _normal(entry):
        sentence = f"{entry.written} is {entry.shown}, and {first.shown} at {first.place}; give all the same"
        raise config_error(sentence, entry.place)
