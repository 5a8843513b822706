"""A message's octets at the door, as values: line ends, chunks, header fields that are read or added.

Pure. May import `mqcd.core` and `mqcd.config.settings`.
"""
