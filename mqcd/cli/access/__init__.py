"""The commands that say who may log in, and what may use the API: `user`, `token`."""
