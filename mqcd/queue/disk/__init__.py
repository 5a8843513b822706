"""What guards a queue's roots: the lock of their one owner, before anything is read; free space and the
reserve file, all the time. (Calls that change files are in `mqcd.disk`.)

Imports mqcd.disk and core.
"""
