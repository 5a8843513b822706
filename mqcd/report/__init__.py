"""Mail back: reports of failure, delay and success (RFC 3464). A report that fails causes no other.

Imports config and core; knows the queue only through `core.ports`.
"""
