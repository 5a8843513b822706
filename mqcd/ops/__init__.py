"""Metrics, log, audit logs and pages. All of them observe the same events.

Imports net, config and core; knows the queue only through `core.ports`.
"""
