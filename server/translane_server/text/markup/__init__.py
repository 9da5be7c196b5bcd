"""Texts with markup: what of a text in HTML, Markdown or XLIFF is translated, and the text around the translations."""
