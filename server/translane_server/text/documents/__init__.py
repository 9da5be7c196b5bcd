"""Documents: which texts of a file are translated, and the file around their translations."""

from translane_server.text.documents.document import Document, DocumentText
from translane_server.text.documents.kinds import KINDS, Kind, parse
from translane_server.text.documents.text_file import DocumentError

__all__ = ["KINDS", "Document", "DocumentError", "DocumentText", "Kind", "parse"]
