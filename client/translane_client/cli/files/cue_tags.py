"""The tags in a cue of subtitles."""

CUE_TAGS = (r"<[^<>]*>", r"\{\\[^{}]*\}")
"""Regular expressions of the tags, such as <i>, <v Bob>, <00:19.000> and {\\an8}."""
