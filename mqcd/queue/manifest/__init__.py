"""The MANIFEST: a checksummed log of edits, and the state that they add up to.

Imports disk and format.
"""
