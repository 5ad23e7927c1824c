"""What a run would find and do, as a diff: both clusters read, nothing changed."""
