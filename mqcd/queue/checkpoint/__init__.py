"""The checkpointer: exports sealed segments and moves what lives in the oldest one to clusters and spool.

One MANIFEST edit commits each evacuation. Imports requests and below.
"""
