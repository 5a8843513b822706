"""Logins at the door as values: the SASL mechanisms, the users' credentials, limits on failures.

Pure: responses in, challenges and decisions out. Random octets, time and the slow check of a password hash
come from the caller. May import `mqcd.core`, `mqcd.config.settings`, and the pure modules of `mqcd.submit`.
"""
