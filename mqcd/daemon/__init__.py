"""The server as a whole: its parts made, wired, started in order, reloaded and stopped in order.

A composition root: the one place that joins doors, queue, delivery, reports and ops. It imports nothing here:
commands use single modules of it, and shall start soon.
"""
