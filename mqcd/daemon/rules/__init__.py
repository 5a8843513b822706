"""Standing rules: their form as JSON, and the file that keeps them.

`core.selecting.rules` decides which rule counts for a recipient; delivery asks it of each that it claims.
"""
