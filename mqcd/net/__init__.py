"""Adapters for `mqcd.core.ports`: clock, DNS, connections, TLS contexts.

Also the control socket, both ends. Imports config and core.
"""
