"""Translates offsets between clusters: consumer groups, MirrorMaker 2's checkpoints, and positions kept elsewhere."""
