"""Mail out: which recipient next, to which host, and the verdict of the attempt, per recipient."""
