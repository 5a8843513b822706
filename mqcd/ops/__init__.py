"""What operators see: metrics, log, audit logs and pages, all fed by one observer of events.

Imports net, config and core; knows the queue only through `core.ports`.
"""
