"""Checks of the executors that come before anything is written."""
