"""What is copied besides the records: topic configs, ACLs of topics, heartbeats."""
