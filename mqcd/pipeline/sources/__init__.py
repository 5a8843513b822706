"""Spark data sources for what the server writes: `mqcd-events` and `mqc`.

Imports eventlog, queue and core.
"""
