"""The Kafka log itself: record batches, fetching them from a source and appending them, fenced, to a target."""
