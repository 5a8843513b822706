"""What calls an observer, and an observer that ignores all. Pure.

May import `core.model` and `core.ports`.
"""
