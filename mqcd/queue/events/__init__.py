"""What the journal's frames record, as lines of the event log.

Imports eventlog, wal and format.
"""
