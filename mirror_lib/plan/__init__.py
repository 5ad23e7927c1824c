"""Shows what a run would do, and why: both clusters are read, nothing is changed."""
