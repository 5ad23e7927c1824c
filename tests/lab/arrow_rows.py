"""Arrow record batches with other columns, in what every pyarrow that setup.py allows can do."""

from __future__ import annotations

from typing import Collection

import pyarrow as pa


def with_columns(rows: pa.RecordBatch, **columns: pa.Array) -> pa.RecordBatch:
    """`rows` with these columns in the place of the ones of the same names."""
    arrays = [columns.get(name, rows.column(at)) for at, name in enumerate(rows.schema.names)]
    return pa.RecordBatch.from_arrays(arrays, names=rows.schema.names)


def without(rows: pa.RecordBatch, names: Collection[str]) -> pa.RecordBatch:
    """`rows` without the columns of these names."""
    kept = [(at, name) for at, name in enumerate(rows.schema.names) if name not in names]
    return pa.RecordBatch.from_arrays([rows.column(at) for at, _ in kept], names=[name for _, name in kept])
