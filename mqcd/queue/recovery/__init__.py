"""From what lies on disk to an open shard. There is no other way to start.

Imports memory and below, and makes all of it.
"""
