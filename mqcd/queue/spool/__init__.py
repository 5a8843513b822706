"""Content files in silos, their reference counts and their removal.

Imports wal, manifest, format and disk.
"""
