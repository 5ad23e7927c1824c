"""The engine `records`: Spark's rows, changed by the flow's expressions, to the remote logs by the fenced appender."""
