"""The HTTP server of the ops listener and of the control socket, and the pages that both have.

Imports ops.metrics, net and core.
"""
