"""The metrics, and the observers that count them.

Imports core. `catalogue` lists every metric with its help text.
"""
