"""Exports sealed segments, and evacuates the oldest one to clusters and spool.

One MANIFEST edit commits each evacuation. Imports requests and below.
"""
