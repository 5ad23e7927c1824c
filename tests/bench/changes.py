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
    """`flow` are lines of our flow, `transforms` MirrorMaker's settings. `rule` is how `Digest.java` makes of a source
    record what ours has to write, `rule_of_mm2` what MirrorMaker has to. One record in `one_in` is copied."""

    flow: str
    transforms: Mapping[str, str] = field(default_factory=dict)
    rule: str = AS_IT_IS
    rule_of_mm2: str = AS_IT_IS
    one_in: int = 1


SELECT_ALL = Change('select: "*"')

# Equal results, unlike work: there the header says what here is looked for in the JSON.
FILTER = Change(
    f"where: \"get_json_object(cast(value as string), '$.kind') = '{PLACED}'\"",
    {
        "transforms": "keep",
        "transforms.keep.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.keep.predicate": "placed",
        "transforms.keep.negate": "true",
        "predicates": "placed",
        "predicates.placed.type": "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
        "predicates.placed.name": PLACED_HEADER,
    },
    rule="placed",
    rule_of_mm2="placed",
    one_in=ONE_IN,
)

# MaskField wants a struct or a map, so MirrorMaker copies the records as they are: the field stays readable there.
_CUSTOMER = r'"customer": "[^"]*"'
MASK = Change(
    "select: |-\n      *, regexp_replace(cast(value as string), '" + _CUSTOMER + "', '\"customer\": \"***\"') as value",
    rule="masked",
)
