"""The account of all mail: accepted = delivered + bounced + expired + removed + queued + quarantined.

Imports batch, queue_state, tables and store.
"""
