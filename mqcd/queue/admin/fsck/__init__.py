"""`mqcd fsck`: every file of a queue against every other, and what can be mended without guessing."""
