"""Octets and milliseconds by their names."""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
YEAR = 365 * DAY
