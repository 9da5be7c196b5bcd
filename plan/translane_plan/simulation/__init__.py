"""Simulates the servers of a machine by the server's own rules: events for sentences, and costs in place of work."""
