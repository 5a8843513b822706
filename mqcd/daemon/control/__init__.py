"""What operators see and change on a running server: the pages of the control socket, and what they call.

Knows the parts of a server, and is made by `mqcd.daemon.server`.
"""
