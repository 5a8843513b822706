"""`mqcd fsck`: every file of a queue against every other, and what can be repaired without guessing.

Imports admin.findings, admin.ownership and the queue's rooms of files.
"""
