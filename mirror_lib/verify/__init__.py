"""Proves that remote logs equal their sources: both are read by ordinary consumers, on Spark."""
