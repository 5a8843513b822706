"""The HTTP server of the ops listener and of the control socket, and the pages of the former.

Imports ops.metrics, net and core.
"""
