"""The commands that serve, or show a server at work: `run`, `check`, `demo`, `page`, `feed`, `top`."""
