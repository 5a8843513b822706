"""From what lies on disk to an open shard. There is no other way to start.

`open` has steps R1 and R2, `replay` R3. Imports requests and below, and makes all of it.
"""
