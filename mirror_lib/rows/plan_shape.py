"""The plan of changed rows in; whether it could change order, lose or add records, and whether it can be redone, out.

Pure but for the nodes, which `catalyst.plan_nodes` reads. Names are those of Spark's classes.
"""

from __future__ import annotations

from collections import Counter
from typing import Iterator, List, Mapping, Optional, Sequence

from mirror_lib.rows.catalyst import Node

# What takes one row at a time, in order, and gives at most one for each.
_NARROW = ("Project", "Filter", "SubqueryAlias", "View", "MapInPandas", "MapInArrow", "PythonMapInArrow")
_FUNCTIONS_OF_ROWS = ("MapInPandas", "MapInArrow", "PythonMapInArrow")

_WHY_NOT: Mapping[str, str] = {
    "Aggregate": "groups records, which loses them and their order",
    "Deduplicate": "drops duplicates, which only what is in one pass would be looked at for",
    "Distinct": "drops duplicates, which only what is in one pass would be looked at for",
    "EventTimeWatermark": "has a watermark, which only a query of Spark's own over a stream has",
    "Expand": "makes several records of one",
    "Generate": "makes several records of one; send a record to several topics by rename",
    "Join": "joins, which loses the order of records and may multiply them",
    "Sort": "sorts, which is another order than the source's",
    "Union": "adds rows of another source",
    "Window": "looks at other rows of the same pass",
}
_LIMITS = ("GlobalLimit", "LocalLimit", "Limit", "Offset", "Tail", "LimitAndOffset")
_SHUFFLES = ("Repartition", "RepartitionByExpression", "RebalancePartitions")

_OTHER_VALUE = "gives another value each time it is asked; use a hash of the key, as in pmod(xxhash64(key), 10) = 0"
# Expressions whose value depends on more than the record, by what a user writes for them.
_UNLIKE: Mapping[str, str] = {
    "Rand": f"rand() {_OTHER_VALUE}",
    "Randn": f"randn() {_OTHER_VALUE}",
    "RandStr": f"randstr() {_OTHER_VALUE}",
    "Uniform": f"uniform() {_OTHER_VALUE}",
    "Uuid": "uuid() gives another value each time it is asked",
    "Shuffle": "shuffle() gives another order each time it is asked",
    "MonotonicallyIncreasingID": "monotonically_increasing_id() counts rows of a pass",
    "SparkPartitionID": "spark_partition_id() is the task's number, which another pass has otherwise",
    "InputFileName": "input_file_name() says nothing of a record",
    "CurrentTimestamp": "current_timestamp() is another time each time it is asked",
    "CurrentBatchTimestamp": "current_timestamp() is another time each time it is asked",
    "Now": "now() is another time each time it is asked",
    "LocalTimestamp": "localtimestamp() is another time each time it is asked",
    "CurrentDate": "current_date() is another day tomorrow",
    "CurrentTime": "current_time() is another time each time it is asked",
    "CurrentUser": "current_user() is whoever runs the flow",
    "Sample": "sample() takes other rows each time it is asked",
}

def shape_fault(base: Sequence[Node], nodes: Sequence[Node]) -> Optional[str]:
    """Why rows of `nodes` may not be those of `base`, in order and one for one or none; `None` where they are."""
    before, after = Counter(map(_name, base)), Counter(map(_name, nodes))
    for name in (after - before).elements():
        if name not in (*_NARROW, "Sample"):
            return _fault(name)
    if before - after:
        return "does not read the records that it is given"
    if any(_name(each).endswith(("Subquery", "ListQuery")) for each in _expressions(nodes)):
        return "asks another table, whose rows may change"
    return None


def has_functions_of_rows(nodes: Sequence[Node]) -> bool:
    """Whether a Python function was given whole rows, of which Spark knows no more than the types."""
    return any(_name(each) in _FUNCTIONS_OF_ROWS for each in nodes)


def _fault(name: str) -> str:
    if name in _LIMITS:
        return "stops after so many rows, which loses records"
    if name in _SHUFFLES:
        return "repartitions, which loses the order of records"
    return _WHY_NOT.get(name, f"uses {name}, which may change the order or the number of records")


def why_not_repeatable(nodes: Sequence[Node]) -> Optional[str]:
    """Why the same records may become others the next time, in one sentence; `None` where they cannot.

    Of a function that Spark cannot look into its own word counts: whether it was declared non-deterministic.
    """
    for each in [*nodes, *_expressions(nodes)]:
        name = _name(each)
        if name in _UNLIKE:
            return _UNLIKE[name]
        if each.get("udfDeterministic") is False:
            return f"the function {each.get('name', '')} is declared non-deterministic".replace("  ", " ")
    return None


def _name(node: Node) -> str:
    return str(node["class"]).rpartition(".")[2].rstrip("$")


def _expressions(nodes: Sequence[Node]) -> Iterator[Node]:
    """Every expression of the nodes: their fields hold lists, and lists of lists, of nodes."""
    waiting: List[object] = [value for node in nodes for value in node.values()]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            if "class" in value:
                yield value
            waiting += value.values()
