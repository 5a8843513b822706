"""Idempotency keys: which have been used, by which message, until they are too old.

Keys of live segments are in memory; evacuations move them to sorted key files, of which memory holds four
octets a key. May import: format, manifest, disk.
"""
