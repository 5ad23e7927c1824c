"""`mirror cutover`: move producers and consumers of a flow to its target, step by step, and back."""
