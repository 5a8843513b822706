"""One connection at the door, from its first octet to its last: dialogue (pure), intake of content, filters.

Imports all other rooms of `mqcd.submit`; only `door` stands above it.
"""
