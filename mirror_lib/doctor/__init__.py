"""`mirror doctor`: checks of clusters, permissions, settings, Spark and the state folder before a run."""
