"""The API of the control socket: what can be asked, as one table that pages and description are made of.

Imports ops.http and core; knows no part of a server.
"""
