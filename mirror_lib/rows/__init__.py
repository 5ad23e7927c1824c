"""Flows that change records: Spark's rows in, records with their origin on the remote logs out."""
