"""The commands of `queue`: what waits, as tables, JSON and files; actions on it, which the server does."""
