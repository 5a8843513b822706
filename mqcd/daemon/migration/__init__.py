"""`queue migrate`: mail from one store to another, with the server stopped.

May import `mqcd.daemon.storing`.
"""
