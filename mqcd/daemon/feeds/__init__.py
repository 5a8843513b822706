"""The process of the feeds: a child of the server that sends the event log on.

It imports mqcd.feeds, which it is the composition root of, and nothing of the mail server's parts.
"""
