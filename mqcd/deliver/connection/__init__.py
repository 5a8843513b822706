"""Connections to next hops: opened, used for attempt after attempt, kept, closed, within time limits.

Imports lanes, routing, smtp and health.
"""
