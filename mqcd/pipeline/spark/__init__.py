"""Spark itself: a session that suits the machine, its Java process, its kept classes.

Imports core, disk, queue.helper.pipe, and the two sources.
"""
