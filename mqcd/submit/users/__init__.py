"""The users that may log in at the door: their file, its changes, and the check of a password in threads.

`lines` is the format, `file` reads and replaces it, `directory` is what a server holds of it, `checking` does
the slow part of a login. May import `mqcd.core`, `mqcd.config`, `mqcd.disk` and `mqcd.submit.auth`.
"""
