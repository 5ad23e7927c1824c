"""What a case changes in its records: for this mirror, for MirrorMaker 2 as far as it can, and for the reader.

MirrorMaker's single message transforms see a value as bytes: they can drop, by header or topic, and not look into JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping

# Both are in every value that `fill` writes as JSON; one record in ten is PLACED, and has a header of this name too.
PLACED, SEEN = "order placed", "order seen"
PLACED_HEADER = "placed"
ONE_IN = 10
AS_IT_IS = "all"


@dataclass(frozen=True)
class Change:
    """`flow` are settings of our flow, `transforms` MirrorMaker's. `rule` is how `Digest.java` makes of a source record
    what ours has to write, `rule_of_mm2` what MirrorMaker has to. One record in `one_in` is copied."""

    flow: Mapping[str, str]
    transforms: Mapping[str, str] = field(default_factory=dict)
    rule: str = AS_IT_IS
    rule_of_mm2: str = AS_IT_IS
    one_in: int = 1


SELECT_ALL = Change({"select": '"*"'})

_KEEPS_PLACED = {
    "transforms": "keep",
    "transforms.keep.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.keep.predicate": "placed",
    "transforms.keep.negate": "true",
    "predicates": "placed",
    "predicates.placed.type": "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
    "predicates.placed.name": PLACED_HEADER,
}
_IN_JSON = f"get_json_object(cast(value as string), '$.kind') = '{PLACED}'"
_IN_BYTES = f"contains(value, cast('{PLACED}' as binary))"


def _filter(where: str) -> Change:
    return Change({"where": f'"{where}"'}, _KEEPS_PLACED, rule="placed", rule_of_mm2="placed", one_in=ONE_IN)


# Equal results, unlike work: there the header says what here is looked for in the JSON.
FILTER = _filter(_IN_JSON)
# The same, where JSON is taken apart only of values that have the word somewhere.
FILTER_BYTES_FIRST = _filter(f"{_IN_BYTES} and {_IN_JSON}")
# Equal work.
FILTER_BY_HEADER = _filter(f"exists(headers, header -> header.key = '{PLACED_HEADER}')")

# MaskField wants a struct or a map, so MirrorMaker copies the records as they are: the field stays readable there.
_CUSTOMER = r'"customer": "[^"]*"'
MASK = Change(
    {"select": f"|-\n      *, regexp_replace(cast(value as string), '{_CUSTOMER}', '\"customer\": \"***\"') as value"},
    rule="masked",
)
