"""What operators see: metrics, health and log lines, all hung on one observer of events."""
