"""The clustered-file queue: a journal that makes every change durable, and what is derived from it.

No accepted recipient is lost, at whatever instant the process or the machine stops. Imports eventlog, disk,
config and core.

A message: `store` takes it, `requests.accept` makes a frame of it (`format`), `wal` makes the frame durable,
`memory` holds its recipients. `requests.claim` hands them out, `requests.write` records what becomes of them.
`checkpoint` moves what stays to `clusters` and `spool`, and `manifest` says that it did. `recovery` reads all
of that back; `reading` and `admin` look at it from other processes. These rooms are layers, listed from top
to bottom in pyproject.toml.
"""
