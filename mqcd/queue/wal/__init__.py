"""The write-ahead log (the journal): segments, group commit, and reading both back.

A frame is durable when the future that its append returned is done. Imports manifest, format and disk.
"""
