"""What is asked of an open queue: to accept, to claim, to begin, to settle, to park.

Each request that changes the queue is one frame or several. Imports memory and below.
"""
