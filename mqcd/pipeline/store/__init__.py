"""The tables on disk, and the log that makes a batch atomic. The only room that writes below a table.

Imports core and disk.
"""
