"""What is kept beside the records: topic configs, ACLs of topics, heartbeats."""
