"""Positions of one log as positions of the other: consumer groups, and whatever else remembers offsets."""
