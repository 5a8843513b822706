"""What operators do to many messages at once: batches over a selection, and standing rules.

May import `api` and its siblings in `daemon.control`, except `pages`, which routes to it.
"""
