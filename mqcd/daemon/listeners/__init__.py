"""What listeners need from files: TLS certificates, users and lists, filters; and mail of local programs.

May import `mqcd.daemon.places`.
"""
