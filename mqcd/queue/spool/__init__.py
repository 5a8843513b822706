"""Contents that outlive the journal: files in silos, their reference counts, their removal.

Imports wal, manifest, format and disk.
"""
