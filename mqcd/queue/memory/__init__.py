"""A shard in memory: its entries, what waits, what is counted. Changed on the event loop only.

What a frame records changes here when the frame is durable; claims, freezing and due times that are brought
forward are in memory alone. Imports all rooms of files, and the helper's end.
"""
