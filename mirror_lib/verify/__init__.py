"""Proves that remote logs equal their sources: ordinary consumers on Spark read both logs."""
