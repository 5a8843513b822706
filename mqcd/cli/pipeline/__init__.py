"""The commands of `pipeline`."""
