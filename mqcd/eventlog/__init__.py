"""The event log's files: their names, their retention, the lossy events, pseudonyms.

The lines of recorded transitions come from the queue (`mqcd.queue.events`), which reads its own frames.
Imports disk and core.
"""
