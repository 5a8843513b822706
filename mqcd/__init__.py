"""mqcd: a mail queue server.

Accepts mail over SMTP, takes responsibility for it on disk, delivers it to the next hop or retries
with due diligence, and returns a report when it cannot.
"""

__version__ = "0.1.0"
