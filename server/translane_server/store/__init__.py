"""Bundles from URLs: downloads that are checked, and the folder that keeps them for all servers of a machine."""
