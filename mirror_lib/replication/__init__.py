"""The batch engine: what to copy, by which lane, and with which result."""
