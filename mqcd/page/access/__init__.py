"""Access to the page and the API: tokens with roles, sessions of browsers, and the gate that asks for them.

`tokens` and `file` need nothing of the extra: `mqcd token` imports them.
"""
