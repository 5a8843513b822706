"""The real clock, resolver, dialer and TLS contexts: the only place where the outside is read."""
