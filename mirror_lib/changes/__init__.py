"""What a flow that changes records makes of them: Spark's expressions, names, placement, and whether all can be redone.
"""
