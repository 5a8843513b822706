"""Metrics, log, audit logs and pages, all fed by the same events.

Imports net, config and core; knows the queue only through `core.ports`.
"""
