"""Access to Kafka: brokers, record batches, fetching, fenced producing, topics, ACLs and consumer groups."""
