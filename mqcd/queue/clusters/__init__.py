"""Clusters: files of record lines, their index in memory, and what did not check.

Imports wal, manifest, format and disk.
"""
