"""Checks the executors before anything is written."""
