"""Contents that outlive the journal: files in silos, who still needs them, their removal.

Imports wal, manifest, format and disk.
"""
