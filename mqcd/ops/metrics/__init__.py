"""What /metrics shows, and the observers that count it."""
