"""Translates corpora: files of millions of records, each different source once, through kills and on many machines."""
