"""Takes over from a stopped MirrorMaker: its positions and both logs give the ledger's first rows."""
