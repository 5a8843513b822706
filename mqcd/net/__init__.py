"""The outside world behind the ports of `mqcd.core.ports`: clock, DNS, connections, TLS contexts.

Also the control socket, both ends. Imports config and core.
"""
