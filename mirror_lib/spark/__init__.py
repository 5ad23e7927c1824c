"""Everything that touches Spark itself: its session, its JVM, its errors and its metrics."""
