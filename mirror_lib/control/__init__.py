"""The other things that a flow syncs: topic configs, ACLs of topics, heartbeats."""
