"""A shard in memory: its entries, what waits, what is counted. Changed on the event loop only.

Nothing changes here before the frame that records it is durable. Imports all rooms of files, and
the helper's end.
"""
