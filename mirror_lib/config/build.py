"""Builds the `MirrorConfig` from sorted keys: MirrorMaker 2's precedence, its defaults, and the checks across keys."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, Iterator, Mapping, Optional, Sequence, Tuple

from mirror_lib.config.client_options import kafka_python_options
from mirror_lib.config.custom_classes import check_custom_classes
from mirror_lib.config.document import CONNECT, MM2, YAML, Document, Entry, Errors, config_error, joined, nearest
from mirror_lib.config.model import (
    DEFAULT_POLICY,
    IDENTITY_POLICY,
    MM1_POLICY,
    MM2_TOPICS_EXCLUDE,
    MM2_TRIGGER,
    ClusterConfig,
    MirrorConfig,
    ReplicationFlow,
)
from mirror_lib.config.record_change import BATCHES, CHANGE_KEYS, RecordChange
from mirror_lib.config.security import login_risks
from mirror_lib.config.settings import (
    BY_NAME,
    EMIT_HEARTBEATS,
    ENABLED,
    ENGINE,
    HEARTBEATS_REPLICATION,
    SEPARATOR,
    SETTINGS,
    SOURCE_ALIAS,
    TOPICS_EXCLUDE,
    class_key,
)
from mirror_lib.config.sorted_keys import ROLES, SIDES, Keys, value_of
from mirror_lib.config.values import FLOW, TOP, Setting, is_entry_point, items
from mirror_lib.errors import ConfigError

_SERVER = re.compile(r"(?:[\w.%-]*://)?(?:\[[\w:.%]+\]|[\w.%-]+):\d{1,5}")
_SERVERS = "bootstrap.servers"
# What a template has in place of a value.
_PLACEHOLDER = re.compile(r"[$%<{]|[A-Z]+_[A-Z]+_")
_ALIAS = re.compile(r"[A-Za-z0-9._-]+")
_ALIAS_IS = "a-z, A-Z, 0-9, '.', '_' and '-'"
_TO_ENABLE = {
    YAML: "list A->B under flows",
    MM2: "write A->B.enabled = true",
    CONNECT: "give the file of a connector that is not switched off",
}
# What each side of a flow is used for, and so whose properties must make sense at once.
_ROLES_IN_USE = {"source": ("consumer", "admin"), "target": ("producer", "admin")}
_OF_FLOW = [setting for setting in SETTINGS if setting.level == FLOW]


def build_config(document: Document, keys: Keys, errors: Errors) -> MirrorConfig:
    """Raises one `ConfigError` that lists the wrong entries, those in `errors` among them, and what is wrong with
    clusters and flows. Of flows that lack wrong entries, it has only what these cannot have caused."""
    found = Errors([*document.errors, *keys.errors, *errors])
    scopes = list(_enabled_scopes(document, keys))
    doubtful = found if document.dialect == YAML else [error for error in found if ENABLED in error.message]
    if not scopes and not doubtful:
        advice = _TO_ENABLE[document.dialect] + _lost_flow(document)
        found.append(config_error(f"no flow is enabled; {advice}", document.path))
    if found:
        for flow in (_Flow(document, keys, scope, found) for scope in scopes):
            flow.check_servers()
        raise joined(found, document.path)
    with found.kept():
        flows = _built(document, keys, scopes, found)
        beating = () if found else _heartbeat_scopes(document, keys, scopes)
        pairs = _built(document, keys, beating, found)
        if not found:
            _check_source_groups(flows, document.path)
    if found:
        raise joined(found, document.path)
    top = _top(document, keys)
    idle = [*keys.idle, *(sentence for scope in scopes for sentence in _overruled(keys, scope))]
    idle += _classless(document, keys, flows)
    corrected = [*keys.corrected, *_blank_separators(keys, flows), *_without_heartbeats(document, keys, flows)]
    top.update(idle=tuple(dict.fromkeys(idle)), corrected=tuple(dict.fromkeys(corrected)))
    clusters = {cluster.alias: cluster for flow in flows for cluster in (flow.source, flow.target)}
    risks = [
        f"cluster {alias}: {risk}"
        for alias, cluster in clusters.items()
        for risk in login_risks(cluster.client_properties("admin"))
    ]
    warnings = (*risks, *top["corrected"], *top["idle"])
    return MirrorConfig(flows=flows, heartbeat_pairs=pairs, warnings=warnings, **top)


def _built(document: Document, keys: Keys, scopes: Iterable[str], errors: Errors) -> Tuple[ReplicationFlow, ...]:
    found = []
    for scope in scopes:
        with errors.kept():
            found.append(_Flow(document, keys, scope, errors).build())
    return tuple(found)


def _classless(document: Document, keys: Keys, flows: Sequence[ReplicationFlow]) -> Iterator[str]:
    """A sentence for each key that is for a class, where the class is built in. Raises `ConfigError` in YAML."""
    for (scope, key), entry in keys.custom.items():
        concerned = [flow for flow in flows if scope in ("", flow.name)]
        if concerned and not any(key in flow.custom_properties for flow in concerned):
            sentence = f"{entry.written} is for a class of your own, and {class_key(key)} names none"
            if document.dialect == YAML:
                raise config_error(sentence, entry.place)
            yield f"{sentence} ({entry.place})"


def _blank_separators(keys: Keys, flows: Sequence[ReplicationFlow]) -> Iterator[str]:
    """What remote topics are called where nothing separates the alias from the topic. Raises `ConfigError` where
    another flow copies them on: if it leads back, no name shows that a topic came from there."""
    for flow in (each for each in flows if not each.separator):
        entry = keys.find(flow.name, SEPARATOR)
        if entry is not None and flow.replication_policy == DEFAULT_POLICY:
            if any(each.source.alias == flow.target.alias for each in flows):
                onward = f"and {flow.target.alias} is copied on: records could come back under ever longer names"
                advice = f"give a separator, or {IDENTITY_POLICY}"
                raise config_error(f"{entry.written} is blank, {onward}; {advice}", entry.place)
            named = f"{flow.name} names topics {flow.naming_alias}orders"
            yield f"{entry.written} is blank: {named}; {IDENTITY_POLICY} would keep names ({entry.place})"
        elif entry is not None and keys.find(flow.name, SOURCE_ALIAS) is not None:
            yield f"{entry.written} is blank: {flow.name} keeps names of topics ({entry.place})"


def _without_heartbeats(document: Document, keys: Keys, flows: Sequence[ReplicationFlow]) -> Iterator[str]:
    """MirrorMaker copies heartbeats whatever its connectors are called; a mirror with a name does not."""
    named = keys.settings.get(("", "name")) if document.dialect == MM2 else None
    for flow in (each for each in flows if each.change is None and not each.heartbeats_replication):
        if named is not None and keys.find(flow.name, HEARTBEATS_REPLICATION) is None:
            why = f"heartbeats are not copied by a mirror with a name, unless {HEARTBEATS_REPLICATION} = true"
            yield f"name: {why} ({named.place})"


def _lost_flow(document: Document) -> str:
    if document.dialect != MM2:
        return ""
    unnamed = next((alias for alias in document.aliases if not _ALIAS.fullmatch(alias)), None)
    if unnamed is not None:
        return f"; {unnamed} under clusters is no alias: take {_ALIAS_IS}"
    lost = next((each for each in document.entries if each.ignored), None)
    return "" if lost is None else f"; {lost.key}: {lost.ignored} ({lost.place})"


def _check_source_groups(flows: Sequence[ReplicationFlow], path: str) -> None:
    """Two flows that commit to one group would overwrite each other's offsets of a topic."""
    taken: Dict[Tuple[str, str], str] = {}
    for flow in (each for each in flows if each.commit_source_group):
        group = (flow.source.bootstrap_servers, flow.commit_source_group)
        if group in taken:
            raise config_error(
                f"{taken[group]} and {flow.name} commit to the same group {group[1]} of one cluster; give each its own",
                path,
            )
        taken[group] = flow.name


def _enabled_scopes(document: Document, keys: Keys) -> Iterator[str]:
    """`A->B` of each flow that is to run: those that the file mentions first, in its order."""
    mentioned = [entry.scope for entry in document.entries if "->" in entry.scope]
    pairs = [f"{a}->{b}" for a in document.aliases for b in document.aliases if a != b]
    for scope in dict.fromkeys([*mentioned, *pairs]):
        entry = keys.find(scope, ENABLED)
        if entry is not None and value_of(BY_NAME[ENABLED], entry):
            yield scope


def _heartbeat_scopes(document: Document, keys: Keys, enabled: Sequence[str]) -> Iterator[str]:
    """Pairs that are not copied and have heartbeats: those whose own key asks for them, and where all pairs have them,
    those into a cluster that an enabled flow reads.

    All pairs have them where the bare key says so, and by default in a MirrorMaker 2 file, as in MirrorMaker.
    """
    in_use = dict.fromkeys(alias for scope in enabled for alias in scope.split("->"))
    sources = dict.fromkeys(scope.split("->")[0] for scope in enabled)
    both = [dict.fromkeys([*first, *document.aliases]) for first in (in_use, sources)]
    for a, b in ((a, b) for b in both[1] for a in both[0] if a != b):
        scope = f"{a}->{b}"
        own = (scope, EMIT_HEARTBEATS)
        read_on = a in in_use and b in sources
        entry = keys.find(*own) if read_on else keys.settings.get(own)
        default = read_on and document.dialect == MM2
        if scope not in enabled and (default if entry is None else value_of(BY_NAME[EMIT_HEARTBEATS], entry)):
            yield scope


def _top(document: Document, keys: Keys) -> Dict[str, Any]:
    given = {s: keys.settings.get(("", s.name)) for s in SETTINGS if s.level == TOP and s.field}
    values: Dict[str, Any] = {s.field: value_of(s, entry) for s, entry in given.items()}
    values["places"] = {s.name: entry.place for s, entry in given.items() if entry is not None}
    if document.dialect != YAML and ("", "trigger") not in keys.settings:
        values["trigger"] = MM2_TRIGGER
    return values


class _Flow:
    """Builds one flow of a document."""

    def __init__(self, document: Document, keys: Keys, scope: str, errors: Errors) -> None:
        self._document = document
        self._keys = keys
        self._scope = scope
        self._alias = dict(zip(SIDES, scope.split("->")))
        self._errors = errors
        self._entries = {setting.name: self._entry(setting) for setting in _OF_FLOW}

    def build(self) -> ReplicationFlow:
        """The flow with every setting. Raises `ConfigError`; if more than one thing is wrong, all but one are kept."""
        if self._alias["source"] == self._alias["target"]:
            same = "source and target are the same cluster; name another one"
            raise config_error(f"{self._scope}: {same}", self._place())
        fields: Dict[str, Any] = {}
        with self._errors.kept():
            fields = self._fields()
            self._check_aliases(fields)
        clusters: Dict[str, ClusterConfig] = {}
        for side in SIDES:
            with self._errors.kept():
                clusters[side] = self._cluster(side)
        if not fields or len(clusters) < 2:
            raise self._errors[-1]
        flow = ReplicationFlow(clusters["source"], clusters["target"], **fields)
        check_custom_classes(flow)
        return flow

    def _fields(self) -> Dict[str, Any]:
        given = {name: entry for name, entry in self._entries.items() if entry is not None}
        values = {row.name: value_of(row, self._entries[row.name]) for row in _OF_FLOW}
        fields = {row.field: values[row.name] for row in _OF_FLOW if row.field}
        for row in _OF_FLOW:
            if row.switches and not values[row.name]:
                fields[BY_NAME[row.switches].field] = None
        if not fields["copied"]:
            # The run that copies does these.
            fields.update(sync_topic_configs_interval=None, sync_topic_acls_interval=None)
        mirrormakers = self._document.dialect != YAML
        if self._document.dialect in (MM2, CONNECT) and TOPICS_EXCLUDE not in given:
            fields["topics_exclude"] = items(MM2_TOPICS_EXCLUDE)
        start = fields["start_position"]
        if start is not None and start.word:
            fields.update(auto_offset_reset=start.word, start_position=None)
        # MirrorMaker's files mean its one job; ours asks for what costs a look at all groups.
        asked = mirrormakers or "emit.checkpoints.enabled" in given
        fields["checkpoints_in_run"] = asked and fields["emit_checkpoints_interval"] is not None
        chosen = self._document.asks_for_exactly_once or "delivery" in given
        fields["delivery_may_fall"] = mirrormakers and not chosen
        # Two mirrors of one pair, each with a name, would both copy the heartbeats into one remote topic.
        name = BY_NAME["name"]
        if value_of(name, self._entry(name)) != name.default and HEARTBEATS_REPLICATION not in given:
            fields["heartbeats_replication"] = False
        own = values["replication.policy.internal.topic.separator.enabled"]
        fields["internal_separator"] = fields["separator"] if own else "."
        fields["places"] = {name: entry.place for name, entry in given.items()}
        fields["custom_properties"] = self._custom_properties(values)
        return {**fields, **self._naming(values), **self._change(values, fields["places"])}

    def _naming(self, values: Mapping[str, Any]) -> Dict[str, Any]:
        """The fields of an alias that differs in names of topics. Blank ones and a blank separator keep the names.

        Raises `ConfigError` where a blank alias does not.
        """
        entry = self._entries[SOURCE_ALIAS]
        if entry is None or values["replication.policy.class"] in (IDENTITY_POLICY, MM1_POLICY):
            return {}
        alias = values[SOURCE_ALIAS]
        if not alias and not values[SEPARATOR]:
            return {"replication_policy": IDENTITY_POLICY}
        if not alias:
            raise config_error(
                f"{entry.written} is blank, and remote topics would be called {values[SEPARATOR]}"
                f"orders; name the cluster, or write replication.policy.class = {IDENTITY_POLICY} to keep names",
                entry.place,
            )
        return {} if alias == self._alias["source"] else {"remote_alias": alias}

    def _change(self, values: Mapping[str, Any], places: Mapping[str, str]) -> Dict[str, Any]:
        """The fields of a flow that changes records. Raises `ConfigError` where its engine is said to be the other."""
        change = RecordChange(places=places, **{name: values[key] for key, name in CHANGE_KEYS.items()})
        if values[ENGINE] == BATCHES and change == RecordChange():
            return {"change": None}
        engine = self._entries[ENGINE]
        if values[ENGINE] == BATCHES and engine is not None:
            key = next(key for key, name in CHANGE_KEYS.items() if values[key] != getattr(RecordChange(), name))
            sentence = f"{engine.written} {BATCHES} changes no records, and {self._scope}.{key} asks for it"
            raise config_error(sentence, engine.place)
        # What changes records is written for the flow's topics, and would seldom fit a heartbeat.
        silent = self._entries[HEARTBEATS_REPLICATION] is None
        return {"change": change, **({"heartbeats_replication": False} if silent else {})}

    def _custom_properties(self, values: Mapping[str, Any]) -> Dict[str, str]:
        return {
            key: entry.text.strip()
            for (scope, key), entry in sorted(self._keys.custom.items(), key=lambda each: each[0])
            if scope in ("", self._scope) and is_entry_point(values[str(class_key(key))])
        }

    def _entry(self, setting: Setting) -> Optional[Entry]:
        if setting.client_key is None:
            return self._keys.find(self._scope, setting.name)
        return {**self._properties("source"), **self._of_role("source", "consumer")}.get(setting.client_key)

    def _check_aliases(self, fields: Mapping[str, Any]) -> None:
        keeps_names = fields["replication_policy"] in (IDENTITY_POLICY, MM1_POLICY)
        separator = "" if keeps_names else fields["separator"]
        for alias in filter(None, (*self._alias.values(), fields.get("remote_alias"))):
            if not _ALIAS.fullmatch(alias):
                raise config_error(
                    f"cluster {alias}: an alias is part of topic names; take {_ALIAS_IS}",
                    self._place(),
                )
            if separator and separator in alias:
                # Hops are counted, and cycles seen, by splitting remote names at the separator.
                raise config_error(
                    f"cluster {alias}: an alias must not contain the separator '{separator}'; "
                    "rename it or set replication.policy.separator",
                    self._place(),
                )

    def _cluster(self, side: str) -> ClusterConfig:
        alias, properties = self._alias[side], self._properties(side)
        self._check_servers(side, properties.get("bootstrap.servers"))
        roles = {role: _texts(self._of_role(side, role)) for role in ROLES}
        cluster = ClusterConfig(alias=alias, properties=_texts(properties), **roles)
        for role in _ROLES_IN_USE[side]:
            try:
                kafka_python_options(cluster.client_properties(role))
            except ConfigError as error:
                given = {**properties, **self._of_role(side, role)}
                words = (word.strip(":;,()") for word in error.message.split())
                place = next((given[word].place for word in words if word in given), self._place())
                raise config_error(f"cluster {alias}: {error}", place) from None
        return cluster

    def _properties(self, side: str) -> Dict[str, Entry]:
        """Properties for every client of one side, the weakest first."""
        own = f"{side}.cluster"
        return self._merged([("", ""), (self._alias[side], ""), ("", own), (self._scope, own)])

    def _of_role(self, side: str, role: str) -> Dict[str, Entry]:
        """Properties for one role of one side, the weakest first: as in MirrorMaker 2, `A.consumer.x` beats
        `A->B.consumer.x`, which is for both sides; `A->B.source.consumer.x` beats them both."""
        named, override = f"{side}.{role}", f"{role}.override"
        order = [("", role), (self._scope, role), (self._alias[side], role), ("", named), (self._scope, named)]
        overrides = [("", override), (self._scope, override)] if role in _ROLES_IN_USE[side] else []
        return self._merged([*order, *overrides])

    def _merged(self, order: Sequence[Tuple[str, str]]) -> Dict[str, Entry]:
        merged: Dict[str, Entry] = {}
        for place in order:
            merged.update(self._keys.clients.get(place, {}))
        return merged

    def check_servers(self) -> None:
        """Keep the errors of servers that are given."""
        for side in SIDES:
            entry = self._properties(side).get(_SERVERS)
            with self._errors.kept():
                if entry is not None:
                    self._check_servers(side, entry)

    def _check_servers(self, side: str, entry: Optional[Entry]) -> None:
        alias, of_connector = self._alias[side], self._document.dialect == CONNECT
        key = f"{side}.cluster.{_SERVERS}" if of_connector else f"{alias}.{_SERVERS}"
        if entry is None:
            read = [given[_SERVERS] for given in self._keys.clients.values() if _SERVERS in given]
            own = side if of_connector else alias.lower()
            others = {each.key if of_connector else each.written: each for each in self._document.entries}
            names = (name for name, each in others.items() if own in name.lower() and each not in read)
            like = others.get(nearest(key, names) or "")
            instead = "" if like is None else f", as {like.written} at {like.place} does not count"
            sentence = f"cluster {alias} has no {_SERVERS}; write {key} = host:port{instead}"
            raise config_error(sentence, self._place())
        servers = items(entry.value)
        if not servers or not all(_SERVER.fullmatch(server) for server in servers):
            template = not entry.hidden and _PLACEHOLDER.search(entry.text.rpartition("://")[2])
            advice = "; fill the placeholder in, or write ${env:NAME}" if template else ""
            sentence = f"{entry.written} must be a comma list of host:port{advice}"
            raise config_error(sentence, entry.place)

    def _place(self) -> str:
        scopes = (self._scope, *self._alias.values())
        found = (entry.place for scope in scopes for entry in self._document.entries if entry.scope == scope)
        return next(found, self._document.path)


def _texts(properties: Mapping[str, Entry]) -> Dict[str, str]:
    """Trimmed as Kafka's own parser trims every value, passwords too."""
    return {key: entry.text.strip() for key, entry in properties.items()}


def _overruled(keys: Keys, scope: str) -> Iterator[str]:
    """Warnings where a flow sets a client property and its cluster sets it otherwise: the cluster wins."""
    for side, alias in zip(SIDES, scope.split("->")):
        for role in _ROLES_IN_USE[side]:
            stronger = keys.clients.get((alias, role), {})
            for key, entry in keys.clients.get((scope, role), {}).items():
                other = stronger.get(key, entry)
                if other.text.strip() != entry.text.strip():
                    yield f"{entry.written} is overruled by {other.written}, as in MirrorMaker 2 ({entry.place})"
