"""The client's side of SMTP and LMTP as tables: octets in, octets and outcomes out. Pure.

Imports core.
"""
