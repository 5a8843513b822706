"""Processes beside the server: the page and the feeds of the event log: which are wanted, what keeps them.

May import `mqcd.daemon.page` and `mqcd.daemon.feeds`, which know nothing of the mail server's parts.
"""
