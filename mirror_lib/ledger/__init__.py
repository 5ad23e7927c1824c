"""The Delta tables under `state:`: offset syncs (the ledger), runs and incidents."""
