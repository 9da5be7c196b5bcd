"""`python -m benchmarks.report` writes docs/benchmarks.md."""

from benchmarks.report.page import main

main()
