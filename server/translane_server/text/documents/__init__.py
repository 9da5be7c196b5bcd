"""Documents: which texts of a file are translated, and the file around their translations."""

from translane_server.text.documents.document import Document, DocumentError, DocumentText
from translane_server.text.documents.kinds import KINDS, Kind, parse

__all__ = ["KINDS", "Document", "DocumentError", "DocumentText", "Kind", "parse"]
