"""Which rule decides about one topic or one group, and every rule that was asked before it."""
