"""The write-ahead log (the journal): segments, group commit, and reading both back.

A frame is durable when its append returns. Imports manifest, format and disk.
"""
