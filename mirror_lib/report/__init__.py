"""`mirror report`: the state and the history of every flow as one HTML page, without Spark."""
