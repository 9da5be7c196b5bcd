"""The benchmarks that one starts, each by `python -m benchmarks.runs.NAME` from the folder of the repository."""
