"""What a listener checks of names and senders: by lists, by their form, and what DNS has to say. Pure.

The checks return decisions; `session.desk` asks DNS.
"""
