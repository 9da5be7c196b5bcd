"""Requests over the socket with their recorded answers: what a caller gets stays what it is.

`requests/` has a request on each line, `answers/` the answers. `PYTHONPATH=tests .venv/bin/python -m golden` records
all answers anew, or those of the files that it is given: look at the diff.
"""
