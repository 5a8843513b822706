"""Filters that ship: aiosmtpd handlers for a listener's `<filter class="module:Class">`; see docs/filters.md.

They know mail as any other handler does, by session and envelope, and nothing of the listener.
`envelope` brings what handlers leave into the door's transaction.
"""
