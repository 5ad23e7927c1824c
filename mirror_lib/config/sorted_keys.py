"""Sorts the keys of a `Document`: settings by scope, client properties by scope and prefix; and what has no effect.

In MirrorMaker's and Connect's files a key that MirrorMaker ignores is ignored and named. In YAML it is an error.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Dict, Iterable, List, Optional, Tuple

from mirror_lib.config.client_names import CLIENT_PROPERTIES
from mirror_lib.config.document import CONNECT, MM2, YAML, Document, Entry, Errors, config_error, nearest
from mirror_lib.config.settings import BY_NAME, ENABLED, Unused, class_key, meant, unused
from mirror_lib.config.values import FLOW, TOP, Setting
from mirror_lib.errors import ConfigError

# Client properties that decide which records are copied. MirrorMaker's consumer reads them only under these prefixes.
OF_THE_COPY = ("auto.offset.reset", "isolation.level")
_OF_CONSUMERS = ("consumer", "source.consumer", "target.consumer")
# Client properties, and their starts, that mean something beyond Spark's own source.
READ_STARTS = ("ssl.", "sasl.", "security.", "bootstrap.", "reconnect.backoff.")
READ = ("client.id", "group.id", "request.timeout.ms", "connections.max.idle.ms", "metadata.max.age.ms",
        "isolation.level", "auto.offset.reset")


def reaches_the_copy(key: str) -> bool:
    """Whether a client property means something beyond Spark's own source, which only looks where a log ends."""
    return key.startswith(READ_STARTS) or key in READ


ROLES = ("consumer", "producer", "admin")
SIDES = ("source", "target")
# The longest come first: "consumer." is also the start of "consumer.override.".
_FLOW_PREFIXES = (
    *(f"{role}.override" for role in ROLES),
    *(f"{side}.cluster.{role}" for side in SIDES for role in ROLES),
    *(f"{side}.cluster" for side in SIDES),
    *(f"{side}.{role}" for side in SIDES for role in ROLES),
    *ROLES,
)
_BARE_CLIENT_KEY = re.compile(r"ssl\..*|sasl\..*|security\.protocol|bootstrap\.servers")
# By prefix of a flow's key: the clients that read its logins and servers in MirrorMaker, and that nothing here needs.
_OF_OTHER_CLIENTS = {
    "producer": "MirrorMaker writes offset syncs with it, and records with the target's own producer",
    **dict.fromkeys(("consumer.override", "admin.override"), "Connect reads its own offsets topic with it"),
}
_PROVIDER = re.compile(r"config\.providers(\.[\w-]+\.class)?")
_OWN_SIZES = "ignored: what copies keeps batches as they are, with sizes, waits and acknowledgements of its own"
_WORDS = re.compile(r"[.-]")
_OF_FLOWS = [name for name, setting in BY_NAME.items() if setting.level == FLOW]


class Keys:
    """The keys of a document: `settings` by (scope, name), with valid values only; `clients` by (scope,
    prefix) and Java name, the prefix `""` meaning every client.

    `custom` are the keys for classes of the user's, by (scope, key). `idle` has a sentence for each key without effect,
    `corrected` for each that is read otherwise than it is written. `errors` are of keys that were left out.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self._strict = document.dialect == YAML
        self._renamed: Dict[Tuple[str, str], Entry] = {}
        self.settings: Dict[Tuple[str, str], Entry] = {}
        self.clients: Dict[Tuple[str, str], Dict[str, Entry]] = {}
        self.custom: Dict[Tuple[str, str], Entry] = {}
        self.idle: List[str] = []
        self.corrected: List[str] = []
        self.errors = Errors()
        for entry in document.entries:
            with self.errors.kept():
                self._add(entry)
        # A key under its right name beats an old or misspelt one, whichever comes first in the file: in MirrorMaker's
        # files also a bare one.
        for (scope, name), entry in list(self._renamed.items()):
            if (scope, name) in self.settings or (("", name) in self.settings and not self._strict):
                self._leave(f"{name} beats it", self._renamed.pop((scope, name)))
            else:
                self._correct(entry, name)
        given, self.settings = {**self._renamed, **self.settings}, {}
        for (scope, name), entry in given.items():
            with self.errors.kept():
                try:
                    value_of(BY_NAME[name], entry)
                    self.settings[scope, name] = entry
                except ConfigError as error:
                    # Heartbeats are written for a pair that is not enabled, too.
                    if name == "name" and self._document.dialect == MM2:
                        self._leave("it would name connectors, and no mirror can be called that", entry)
                    elif "heartbeats" in name or self._is_read(scope):
                        raise
                    else:
                        self._leave(f"the flow is not enabled; {error.message}", entry)

    def find(self, scope: str, name: str) -> Optional[Entry]:
        """The setting of a flow, or else of every flow."""
        return self.settings.get((scope, name)) or self.settings.get(("", name))

    def _is_read(self, scope: str) -> bool:
        """Whether MirrorMaker 2 starts what reads these settings: the flow, or one into the cluster."""
        if self._document.dialect != MM2 or not scope:
            return True
        if "->" not in scope:
            return any(self._is_read(f"{alias}->{scope}") for alias in self._document.aliases if alias != scope)
        of_scope = {entry.scope: entry for entry in self._document.entries if ENABLED in (entry.key, meant(entry.key))}
        enabled = of_scope.get(scope) or of_scope.get("")
        return enabled is not None and enabled.text.strip().lower() != "false"

    def _add(self, entry: Entry) -> None:
        """Put one entry where it belongs. Raises `ConfigError` where it belongs nowhere."""
        setting, row = BY_NAME.get(entry.key), unused(entry.key)
        of_cluster = bool(entry.scope) and "->" not in entry.scope
        if entry.ignored:
            return self._leave(entry.ignored, entry)
        if _PROVIDER.fullmatch(entry.key):
            return  # its references are resolved by now
        if not of_cluster and class_key(entry.key) is not None:
            self.custom[entry.scope, entry.key] = entry
        elif setting is not None and setting.client_key is None:
            self._add_setting(setting, entry, of_cluster)
        elif of_cluster and entry.key == "transforms":
            self._leave("a cluster has no transforms", entry)
        elif row is not None:
            self._add_unused(row, entry)
        else:
            client = self._client(entry, of_cluster)
            if client is None:
                self._add_renamed(entry)
            else:
                self._keep_client(entry, *client)

    def _leave(self, why: str, entry: Entry) -> None:
        self.idle.append(f"{entry.written}: ignored: {why} ({entry.place})")

    def _correct(self, entry: Entry, name: str) -> None:
        self.corrected.append(f"{entry.written} should be {name} and is read as that ({entry.place})")

    def _remark(self, entry: Entry) -> None:
        self.corrected += (f"{remark} ({entry.place})" for remark in entry.remarks)

    def _add_setting(self, setting: Setting, entry: Entry, of_cluster: bool = False) -> None:
        if of_cluster:
            where = f"A->B.{setting.name}" if setting.level == FLOW else setting.name
            self._refuse_or_leave(entry, f"is not a setting of a cluster; write {where}")
        elif entry.key == "name" and entry.scope:
            self._leave("connectors have no names here", entry)
        elif setting.level == TOP and entry.scope:
            raise config_error(f"{setting.name} is for the whole file; write it without {entry.scope}", entry.place)
        else:
            kept = self.settings if setting.name == entry.key else self._renamed
            kept[entry.scope, setting.name] = entry
            self._remark(entry)

    def _add_unused(self, row: Unused, entry: Entry) -> None:
        if (row.refuses(entry.text) and self._is_read(entry.scope)) or (self._strict and not row.accepted):
            raise config_error(f"{entry.written} cannot be honoured: {row.reason}; take it out", entry.place)
        if not row.accepted:  # else the value asks for what the copy does
            self._leave(row.reason, entry)

    def _client(self, entry: Entry, of_cluster: bool) -> Optional[Tuple[str, str]]:
        """The prefix and the Java name of a client property of a cluster (`A.x`, `A.consumer.x`), of a flow
        (`A->B.consumer.x`) or of everything (`ssl.x`, `consumer.x`)."""
        prefixes = ROLES if of_cluster else _FLOW_PREFIXES
        prefix = next((each for each in prefixes if entry.key.startswith(each + ".")), "")
        key = entry.key[len(prefix) + 1 :] if prefix else entry.key
        if not prefix and not of_cluster and (entry.scope or not _BARE_CLIENT_KEY.fullmatch(key)):
            return None
        # `source.cluster.consumer.x` is read as `source.consumer.x`.
        return prefix.replace(".cluster.", "."), key

    def _add_renamed(self, entry: Entry) -> None:
        name = meant(entry.key)
        if name is None:
            advice = self._advice(entry) or ("docs/reference/settings.md lists them all" if self._strict else "")
            mirrormakers = "" if self._strict else " of MirrorMaker either"
            self._refuse_or_leave(entry, f"is not a setting{mirrormakers}{'; ' if advice else ''}{advice}")
            return
        if entry.key.lower().endswith(".ms") and name.endswith(".seconds") and entry.text.strip().isdecimal():
            entry = replace(entry, value=f"{int(entry.text) / 1000:g}")
        row = unused(name)
        if row is None:
            self._add_setting(BY_NAME[name], entry)
        else:
            self._correct(entry, name)
            self._add_unused(row, entry)

    def _refuse_or_leave(self, entry: Entry, why: str) -> None:
        """YAML is this mirror's own, so a key without a place is an error there. MirrorMaker starts with it."""
        if self._strict:
            raise config_error(f"{entry.written} {why}", entry.place)
        self._leave(f"it {why}", entry)

    def _keep_client(self, entry: Entry, prefix: str, key: str) -> None:
        mirrormakers = self._document.dialect in (MM2, CONNECT)
        if prefix and not entry.scope and self._document.dialect == MM2:
            if _BARE_CLIENT_KEY.fullmatch(key):
                # Read for every cluster, it would beat the clusters' own, and send one's login to the other.
                return self._leave(f"MirrorMaker drops it; {self._read_as(entry, key)}", entry)
            if reaches_the_copy(key):
                dropped = "MirrorMaker 2 drops it without a cluster or flow before it; here it is used for all"
                self.corrected.append(f"{entry.key}: {dropped} ({entry.place})")
        of_consumer = prefix in _OF_CONSUMERS and ".cluster." not in entry.key
        if key in OF_THE_COPY and not of_consumer and mirrormakers:
            return self._leave(f"MirrorMaker drops it; {self._read_as(entry, key)}", entry)
        other = _OF_OTHER_CLIENTS.get(prefix) if "->" in entry.scope and _BARE_CLIENT_KEY.fullmatch(key) else None
        if other is not None and mirrormakers:
            return self._leave(f"{other}; {self._read_as(entry, key)}", entry)
        if key not in CLIENT_PROPERTIES:
            plain = key[len("override.") :] if key.startswith("override.") else key
            like = nearest(plain, CLIENT_PROPERTIES, cutoff=0.9)
            right = f"; did you mean {entry.written[: len(entry.written) - len(key)]}{like}?" if like else ""
            if like and self._strict:
                raise config_error(f"{entry.written} is not a Kafka client property{right}", entry.place)
            setting = None if like or prefix else _slip_of(entry, _OF_FLOWS)
            right = f"; did you mean A->B.{setting}?" if setting else right
            sentence = "is no client property of Kafka; it is passed on"
            self.idle.append(f"{entry.written} {sentence}{right} ({entry.place})")
        elif not reaches_the_copy(key):
            self.idle.append(f"{entry.written}: {_OWN_SIZES} ({entry.place})")
        self._remark(entry)
        if key == "auto.offset.reset" and entry.text.strip() == "none" and not self._strict:
            fails = "is read as on.data.loss = fail: a lost offset stops its partition; a new one starts at earliest"
            self.corrected.append(f"{entry.written} = none {fails} ({entry.place})")
            entry = replace(entry, value="earliest")
        self.clients.setdefault((entry.scope, prefix), {})[key] = entry

    def _advice(self, entry: Entry) -> str:
        aliases = self._document.aliases
        if entry.key in CLIENT_PROPERTIES and aliases:
            return self._read_as(entry, entry.key)
        like = _slip_of(entry, _OF_FLOWS if entry.scope else BY_NAME)
        head, _, rest = entry.key.partition(".")
        if like is None and not entry.scope and aliases and rest in CLIENT_PROPERTIES:
            alias = next((each for each in aliases if each.lower() == head.lower()), None) or nearest(head, aliases)
            if alias is None:
                return f"the clusters are {', '.join(aliases)}"
            like = f"{alias}.{rest}"
        return f"did you mean {entry.scope and entry.scope + '.'}{like}?" if like else ""

    def _read_as(self, entry: Entry, key: str) -> str:
        """Where a client property is read."""
        source, _, target = (entry.scope or "->".join(self._document.aliases[:2])).partition("->")
        if self._document.dialect == CONNECT:
            places = ("source.cluster", "target.cluster"), ("source.consumer", "producer.override")
        else:
            places = (source, target or source), (f"{source}.consumer", f"{target or source}.producer")
        found = places[not (self._strict or _BARE_CLIENT_KEY.fullmatch(key))]
        named = dict.fromkeys(f"{each}.{key}" for each in found)
        return "it is a client property: " + " or ".join(list(named)[: 1 if key in OF_THE_COPY else 2])


def value_of(setting: Setting, entry: Optional[Entry]) -> Any:
    """The value that an entry gives the setting, or its default. Raises `ConfigError`."""
    try:
        return setting.kind.parse(setting.default if entry is None else entry.value)
    except ValueError as error:
        assert entry is not None
        raise config_error(f"{entry.written} {error}, not {entry.shown}", entry.place) from None


def _slip_of(entry: Entry, names: Iterable[str]) -> Optional[str]:
    """The setting of `names` that the key is a slip of: the same number of words, each alike. No name is better than
    one that means something else."""
    # `topics.whitelist` is said of MirrorMaker 1's option, and read by no MirrorMaker 2.
    key = re.sub(r"s?\.whitelist$", "s", entry.key.lower())
    for name in difflib.get_close_matches(key, list(names), n=5, cutoff=0.75):
        pairs = [*zip_longest(_WORDS.split(key), _WORDS.split(name), fillvalue="")]
        if all(difflib.SequenceMatcher(None, *pair).ratio() >= 0.75 for pair in pairs):
            return name
    return None
