"""The loop of delivery: when to claim (`plan`, pure), what wakes it (`wake`), its turns (`loop`).

Imports the rooms and modules that claimed recipients pass; only `service` stands above it.
"""
