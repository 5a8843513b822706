"""Disk access: every call that changes a file of queue or event log, and helpers built directly on it.

`durable` is their one write path; tests make each of its calls fail. The pipeline's tables, which can be made
again, are written without it. Imports nothing of mqcd but core.
"""
