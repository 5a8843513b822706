"""TLS of listeners: their certificates, and the layer between a connection's transport and its protocol.

That of connections to next hops: `net.dialer`, `net.tls`.
"""
