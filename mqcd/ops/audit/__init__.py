"""The audit logs: one line for each recipient delivered or failed for good.

Imports ops.log's writer and core.
"""
