"""What a client may do: relay rules, quotas, capacity and load, and the lists and databases that they read.

May import `esmtp`, `message`, `checks`, `auth`, `users` and `filters`; knows no session.
"""
