"""Taking over from a stopped MirrorMaker: its positions and both logs in, the ledger's first rows out."""
