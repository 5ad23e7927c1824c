"""The row engine, for flows that change records: Spark's rows are written with a header of their origin."""
