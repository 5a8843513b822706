"""SMTP as values: replies, DSN parameters, transparency, message and certificate fields. Pure."""
