"""Mail back: bounces of a message become one report (RFC 3464); a report that fails becomes nothing.

Imports config and core; knows the queue only through `core.ports`.
"""
