"""The words of SMTP at the door: states, parameters, replies and refusals, the message being announced.

Pure. May import `mqcd.core` and `mqcd.config.settings`. Sessions, policy and logins are made of these.
"""
