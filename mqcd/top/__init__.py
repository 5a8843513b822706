"""`mqcd top`: a client of a running server, not part of it.

It knows the server by its pages and its control socket only. Imports core and net.
"""
