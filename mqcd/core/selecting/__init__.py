"""Selections of recipients: by flags, and by conditions in the language of `--where`. Pure."""
