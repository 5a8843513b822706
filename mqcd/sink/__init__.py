"""A next hop for tests and demonstrations. It accepts, refuses, stalls or drops mail by rules.

Imports core.
"""
