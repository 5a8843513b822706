"""The outside world as the ports of `mqcd.core.ports` want it: clock, DNS, connections, TLS contexts."""
