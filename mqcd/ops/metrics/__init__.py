"""What /metrics shows, and the observers that count it.

Imports core. `catalogue` lists every metric with its help text.
"""
