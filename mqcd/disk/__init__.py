"""Disk access: every call that changes a file, and helpers built directly on it.

`durable` is the write path of queue, event log and stores alike; tests make each of its calls fail.
Imports nothing of mqcd but core.
"""
