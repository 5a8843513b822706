"""Watching delivery: what is stuck, and which mail a crash may be due to. Pure.

Imports lanes and core.
"""
