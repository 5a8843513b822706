"""The queue browser: what a condition selects, one message, and what is done to either."""
