"""The HTTP API: the calls of the control socket under /v1, for holders of tokens.

`calls` says which calls are offered, and to whom; `proxy` passes them on.
"""
