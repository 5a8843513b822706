"""Where a recipient's mail goes: relays, the sites of MX hosts, zones and policies. Pure but for `router`.

Imports smtp's values, config and core.
"""
