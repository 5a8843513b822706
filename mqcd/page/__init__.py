"""The HTTP API and the page for people, in a process of their own (extra `page`).

It knows the server by its control socket alone: whatever it does, and however slowly, the mail loop does not
wait for it. It imports config, core, disk and net; never the queue, and no other way in or out of the server.
"""
