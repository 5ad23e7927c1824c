"""What a run without a ledger would find out, and for which flows it cannot."""
