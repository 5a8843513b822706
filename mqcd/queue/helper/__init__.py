"""The helper process of a shard: its pipe, the jobs that it does, and scans of the queue.

Jobs are values that say what and functions that do it; each can be repeated. Imports everything
that works on files, and nothing of a shard's memory.
"""
