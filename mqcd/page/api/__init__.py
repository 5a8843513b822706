"""The HTTP API: the calls of the control socket under /v1, for holders of tokens."""
