"""The replication query: what to copy, by which lane, and what became of it."""
