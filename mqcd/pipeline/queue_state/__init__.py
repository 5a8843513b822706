"""The queue's own records at one moment, and which of them are overdue.

Imports sources, and the queue's readers.
"""
