"""A next hop for tests and demonstrations: accepts, refuses, stalls or drops mail as rules say.

Imports core.
"""
