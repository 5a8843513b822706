"""What a queue's roots need before anything is read: one owner, free space, a reserve file.

Imports mqcd.disk and core.
"""
