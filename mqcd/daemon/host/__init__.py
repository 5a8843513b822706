"""What the operating system gives the server: user, descriptors, memory, and the end of a process or a part.

May import `mqcd.daemon.derived`.
"""
