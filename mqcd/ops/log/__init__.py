"""The log: one event a line, written by a thread that keeps nobody waiting."""
