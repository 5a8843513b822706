"""Kinds of value that a configuration holds: how each is read, checked and written. Pure."""
