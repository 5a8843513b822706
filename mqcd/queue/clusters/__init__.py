"""Files of record lines, their index in memory, and the quarantine.

Imports wal, manifest, format and disk.
"""
