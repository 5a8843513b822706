"""What is followed as it happens: events, and what is said in sessions that are traced.

May import `api`; `pages` routes to it.
"""
