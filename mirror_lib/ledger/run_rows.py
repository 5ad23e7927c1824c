"""Makes a DataFrame of many rows of integers with one Python worker of Spark.

As text in a plan (`local_rows`) a ledger row takes some kilobytes of Java's heap, so a few hundred thousand rows fill
it. Here rows are sent as a stream of Arrow, with each repeated value once.
"""

from __future__ import annotations

from array import array
from typing import Iterable, Iterator, Mapping, Sequence, Tuple, Union

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mirror_lib.spark.jobs import Shipped

# Rows in one Arrow batch from the worker.
ROWS_AT_ONCE = 50_000
TYPES = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64()}

Value = Union[str, int, None]
Columns = Sequence[Tuple[str, str]]


def packed(columns: Columns, numbers: Sequence[str], given: Sequence[Tuple[Mapping[str, Value], bytes]]) -> bytes:
    """The rows of `given` under `columns` (name, Spark SQL type: one of TYPES).

    Each of `given` is several rows: their common values by column, and the `numbers` of row after row, columns of type
    bigint, as integers of 64 bits in this machine's byte order."""
    width, flat = len(numbers), array("q", b"".join(rows for _, rows in given))
    own = {name: flat[number::width] for number, name in enumerate(numbers)}
    sizes = (len(rows) // (8 * width) for _, rows in given)
    which = pa.concat_arrays([pa.repeat(pa.scalar(number, pa.int32()), size) for number, size in enumerate(sizes)])
    arrays = [
        pa.Array.from_buffers(pa.int64(), len(own[name]), [None, pa.py_buffer(own[name])])
        if name in own
        else pa.DictionaryArray.from_arrays(which, pa.array([same[name] for same, _ in given], TYPES[kind]))
        for name, kind in columns
    ]
    table, sink = pa.table(arrays, names=[name for name, _ in columns]), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_table(table, ROWS_AT_ONCE)
    packed_rows: bytes = sink.getvalue().to_pybytes()
    return packed_rows


def unpacked(stream: bytes) -> Iterator[pa.RecordBatch]:
    for batch in pa.ipc.open_stream(stream):
        whole = [each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for each in batch.columns]
        yield pa.RecordBatch.from_arrays(whole, names=batch.schema.names)


def run_rows(spark: SparkSession, columns: Columns, given: Shipped[bytes]) -> DataFrame:
    """A DataFrame of what was `packed` with `columns`, for use inside the context of `given`."""
    ddl = ", ".join(f"{name} {type_name}" for name, type_name in columns)

    def make(ones: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in ones:  # one row, which triggers the output
            yield from unpacked(given.value)

    return spark.range(0, 1, 1, 1).mapInArrow(make, ddl)
