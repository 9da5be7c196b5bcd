"""What operators see of the server: metrics and log lines."""
