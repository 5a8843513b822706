"""The log: one event a line, written by a thread, so that a slow reader delays no mail.

Imports config and core.
"""
