"""Translates corpora: files of millions of records, each different source once, through kills and on many machines.

What ends a run is a BatchError, a TranslaneError of the servers, an OSError of a file or an sqlite3.Error of the state.
The command makes a sentence of each.
"""
