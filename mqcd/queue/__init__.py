"""The clustered-file queue: a journal that makes every change durable, and what is derived from it.

No accepted recipient is lost, at whatever instant the process or the machine stops. Imports eventlog, disk,
config and core. Its rooms are layers, listed from top to bottom in pyproject.toml.
"""
