"""The queue as it was at one moment, read from its files; nothing here writes.

Imports events, clusters, wal, manifest, format and disk.
"""
