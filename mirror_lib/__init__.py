"""Copies Kafka topics from cluster to cluster on Spark Structured Streaming, exactly once for every reader."""

__version__ = "0.1.0"
