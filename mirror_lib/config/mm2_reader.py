"""Reads a MirrorMaker 2 `.properties` file into a `Document`: each key is split into its scope and the rest.

Comments after a value and quotes around it, which such files often have, are removed with a remark.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import List, Sequence, Tuple

import javaproperties

from mirror_lib.config.document import (
    LINE_END,
    MM2,
    Document,
    Entry,
    config_error,
    last_of_each,
    read_properties,
    unlisted,
)
from mirror_lib.config.record_change import CONDITION, SELECT_LIST
from mirror_lib.config.settings import BY_NAME, SOURCE_ALIAS, class_key, meant
from mirror_lib.config.values import PATTERNS, items

# Kafka's own pages also write comments as `// …`. `#{…}#` is what a pipeline fills in.
_COMMENT_AFTER = re.compile(r"((^|\s+)#(?!\{)|\s+//\s).*$", re.DOTALL)
# Client properties whose values may hold '#', '//' and quotes of their own. In SQL these are part of what is said.
_HOLDS_ANYTHING = re.compile(r"password|jaas|secret|keystore\.key|certificate|client\.id|\.url")
_QUOTED = re.compile(r"\s*([\"'])(.*)\1\s*", re.DOTALL)


def read_mm2(content: bytes, path: str) -> Document:
    """The file's clusters and keys; keys of pairs that are not two of its clusters are left out, as MirrorMaker does.

    Raises `ConfigError` where there are no clusters.
    """
    found = read_properties(content, path)
    aliases = _aliases(found, path)
    entries: List[Entry] = []
    for one in found:
        scope, ignored = _scope(one, aliases)
        key = one.key[len(scope) + 1 :] if scope else one.key
        entry = tidied(replace(one, scope=scope, key=key, ignored=ignored))
        if scope in aliases and key == "alias" and entry.text.strip() != scope:
            entries[:0] = _alias_of_flows(entry, found, aliases)  # first, so that a flow's own one beats it
        else:
            entries.append(entry)
    return Document(path, MM2, aliases, tuple(last_of_each(entries).values()))


def _alias_of_flows(entry: Entry, found: Sequence[Entry], aliases: Sequence[str]) -> List[Entry]:
    """`A.alias` as MirrorMaker reads it: the `source.cluster.alias` of each flow out of A. To flows into A it is the
    `target.cluster.alias`, by which MirrorMaker knows its own copies: raises `ConfigError` where both run."""
    on = [one.key for one in found if one.key.endswith(".enabled") and one.text.strip().lower() != "false"]
    enabled = [key[: -len(".enabled")] for key in on]
    flows = [f"{entry.scope}->{other}" for other in aliases if other != entry.scope]
    into = next((flow for flow in enabled if flow.endswith(f"->{entry.scope}")), None)
    if into is not None and not set(flows).isdisjoint(enabled):
        what = f"{entry.written} is not read for {into}; list {entry.text} in clusters instead of {entry.scope}"
        raise config_error(what, entry.place)
    remark = (f"{entry.written} is read as A->B.{SOURCE_ALIAS}",)
    return [replace(entry, scope=flow, key=SOURCE_ALIAS, remarks=remark) for flow in flows]


def tidied(entry: Entry) -> Entry:
    """The entry with its value as its writer meant it, and a remark for each thing that was put right."""
    setting = BY_NAME.get(meant(entry.key) or "")
    free = class_key(entry.key) is not None or (setting is None and _HOLDS_ANYTHING.search(entry.key))
    if free or (setting is not None and setting.kind in (CONDITION, SELECT_LIST)):
        return entry
    is_list, remarks = setting is not None and setting.kind is PATTERNS, []
    folded = _unfolded(entry) if is_list else entry.text
    if folded != entry.text:
        remarks.append("comments between the lines of the list are left out")
    text = _COMMENT_AFTER.sub("", folded)
    if text != folded:
        mark = "#" if folded[len(text) :].lstrip().startswith("#") else "//"
        remarks.append(f".properties has no comments after a value, but '{mark}' is read as one")
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        text = quoted.group(2)
        remarks.append("quotes are part of a value in .properties; read without")
    # Java takes the quote before "*.internal" of published examples as what is repeated. With a bare '*' MirrorMaker
    # copies if it is in a pattern of groups, and does not start if it is in one of topics.
    if is_list and (quoted is not None or (meant(entry.key) or "").startswith("groups")):
        unquoted = items(text) if quoted is None else _unquoted(text)
        text = ",".join(re.sub(r"^\*", ".*", each) for each in unquoted)
        if text != ",".join(unquoted):
            remarks.append("'*' at the start of a pattern is read as '.*'")
    return replace(entry, value=text, remarks=tuple(f"{entry.written}: {remark}" for remark in remarks))


def _unfolded(entry: Entry) -> str:
    """The value without the comments that stand between the lines of a list: Java makes them part of it."""
    # Where Java ends a line. `splitlines` also splits at characters that ISO-8859-1 makes of UTF-8's bytes.
    lines = LINE_END.split(entry.source)
    lines = lines[:-1] if not lines[-1] else lines
    # Every line but the last one ends in the backslash that folds it.
    folded = [*(line[:-1] for line in lines[:-1]), *lines[-1:]]
    bare = [_COMMENT_AFTER.sub("", line) for line in folded]
    if len(lines) < 2 or bare == folded:
        return entry.text
    return str(javaproperties.loads("\\\n".join(bare))[entry.written])


def _unquoted(text: str) -> Tuple[str, ...]:
    return tuple(item.strip("\"'") for item in items(text))


def _aliases(found: Sequence[Entry], path: str) -> Tuple[str, ...]:
    given = [one for one in found if one.key == "clusters"]
    if not given:
        keys = {one.key.strip("\"'") for one in found}
        advice = "write clusters = A, B"
        if "connector.class" in keys:
            advice = "if a connector is in a script or another tool's file, give its JSON alone"
        elif keys & {"bootstrap.servers", "zookeeper.connect", "zk.connect"}:
            advice = f"this looks like a client's file, as MirrorMaker 1 takes it; {advice}"
        raise config_error(f"no clusters are given; {advice}", path)
    last = tidied(given[-1])
    aliases = _unquoted(last.text)
    if not aliases:
        sentence = "clusters names none; write clusters = A, B (a YAML file ends in .yaml or .yml)"
        raise config_error(sentence, last.place)
    return tuple(dict.fromkeys(aliases))


def _scope(one: Entry, aliases: Sequence[str]) -> Tuple[str, str]:
    """`A->B`, `A` or `""`, and why the key has no effect, if so. A key that is a setting as it stands is bare, however
    the clusters are called."""
    longest_first = sorted(aliases, key=len, reverse=True)
    if one.text.startswith("->") or one.key.endswith("->"):
        return "", "a blank ends the key in .properties; write A->B without blanks"
    if "->" not in one.key:
        bare = one.key in BY_NAME or one.key in (SOURCE_ALIAS, "target.cluster.alias")
        return ("" if bare else next((alias for alias in longest_first if one.key.startswith(alias + ".")), "")), ""
    source, _, rest = one.key.partition("->")
    target = next((alias for alias in longest_first if rest.startswith(alias + ".")), rest.partition(".")[0])
    unknown = next((alias for alias in (source, target) if alias not in aliases), None)
    if unknown is not None:
        return "", f"it names {unlisted(unknown, aliases)}"
    return ("", "a pair is of two clusters") if source == target else (f"{source}->{target}", "")
