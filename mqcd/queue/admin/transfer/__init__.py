"""Mail into a queue and out of it: imports of Mailismus queues and of .eml files, exports.

Imports admin.findings, admin.ownership and the queue's rooms of files.
"""
