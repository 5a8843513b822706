"""Scheduling: a lane for each hop, turns among lanes, rates and connection limits. Pure.

Imports routing and core.
"""
