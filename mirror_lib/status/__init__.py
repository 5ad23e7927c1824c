"""`mirror status`: the state of every flow, from both clusters and the tables, without Spark."""
