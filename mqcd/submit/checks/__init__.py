"""What a listener checks of names and senders: by lists and, where a setting asks, by their
form and by what DNS has to say. Pure. What is an address at all: `core.address`.

The checks return decisions; `session.desk` asks DNS.
"""
