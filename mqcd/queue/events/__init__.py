"""From journal frames to lines of the event log.

Imports eventlog, wal and format.
"""
