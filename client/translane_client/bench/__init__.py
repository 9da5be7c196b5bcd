"""A load generator: a benchmark sends requests at the times of a schedule and measures how long the answers take."""
