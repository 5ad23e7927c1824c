"""`mirror plan`: what a run would change, as a diff, and why the rest stays or is left out."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, FrozenSet, Mapping, Optional, Sequence, Tuple

from mirror_lib.commands.output import chosen_flows, print_json, print_lines
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import EXIT_OK
from mirror_lib.facts import AclBinding

if TYPE_CHECKING:
    from mirror_lib.preview.engine import EngineNote

    MadeAcls = Mapping[str, FrozenSet[AclBinding]]
    Notes = Mapping[str, Optional[EngineNote]]


def plan_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """`mirror plan`: read both clusters and print; nothing is changed."""
    from mirror_lib.cluster import clusters_of
    from mirror_lib.preview.document import preview_json
    from mirror_lib.preview.lines import preview_lines
    from mirror_lib.preview.look import preview

    flows = chosen_flows(arguments, config)
    made, notes = _spark_knows(config, flows)
    for flow in flows:
        with clusters_of(flow) as (source, target):
            found = preview(flow, source, target, config, made.get(flow.name, frozenset()), notes.get(flow.name))
        if arguments.json:
            print_json(preview_json(found))
        else:
            print_lines(preview_lines(found, arguments.all))
    return EXIT_OK


def _spark_knows(config: MirrorConfig, flows: Sequence[ReplicationFlow]) -> Tuple[MadeAcls, Notes]:
    """What each flow may delete, which only the state tells, and how what changes records is copied. Spark is started
    where there is either. Raises ConfigError where a change cannot be made."""
    deleting = [flow for flow in flows if flow.sync_topic_acls_delete and flow.sync_topic_acls_interval is not None]
    changing = [flow for flow in flows if flow.change is not None]
    if not deleting and not changing:
        return {}, {}
    from mirror_lib.changes.check import check_change
    from mirror_lib.preview.engine import engine_note
    from mirror_lib.session import running_session
    from mirror_lib.state.topic_acls import TopicAclTable

    with running_session("mirror plan") as spark:
        table = TopicAclTable(spark, config.state)
        made = {flow.name: table.made(flow.name) for flow in deleting}
        return made, {flow.name: engine_note(flow, *check_change(spark, flow), _refused(flow)) for flow in changing}


def _refused(flow: ReplicationFlow) -> Optional[str]:
    from mirror_lib.records.mirrors import why_not_mixed

    return why_not_mixed(flow) if flow.places_anew else None
