"""Lanes of sites and relays: turns; rates of lanes, zones, senders; connection limits. Pure.

Imports routing and core.
"""
