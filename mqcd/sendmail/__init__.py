"""`mqcd sendmail`: mail of programs on this machine, to the running server or into the maildrop.

A client of the server, not part of it: it knows the socket and the maildrop only, never the configuration,
which other users may not be able to read. Imports core, disk and net. Programs start it for each message,
so it imports little, and that late.
"""
