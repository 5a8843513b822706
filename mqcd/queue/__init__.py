"""The clustered-file queue: a journal that makes every change durable, and what is derived from it.

No accepted recipient is lost, at whatever instant the process or the machine stops.
"""
