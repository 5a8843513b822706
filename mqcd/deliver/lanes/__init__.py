"""Which job is tried next: a lane for each hop, turns over lanes, rates and connection limits. Pure.

Imports routing and core.
"""
