"""Requests to an open queue: accept, claim, begin, settle, park, pick.

Each request that changes the queue is one frame or several. Imports memory and below.
"""
