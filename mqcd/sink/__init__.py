"""A next hop for tests and demonstrations: keeps, refuses, stalls or drops mail as rules say."""
