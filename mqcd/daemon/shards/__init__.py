"""Several shards as one server: the division of a configuration, the supervisor, the pages of all.

May import `listeners` and `control`.
"""
