"""The Delta tables under `state:`: the ledger of offset syncs, group offsets, runs, incidents."""
