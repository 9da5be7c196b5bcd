"""What became of a corpus."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Summary:
    """What became of a corpus.

    Attributes:
        files: files of the corpus.
        records: its records, each of which is in an output.
        blank: records without a text.
        sources: different texts, each of which was translated once.
        duplicates: records whose text an earlier record has.
        translated: records with a translation that is not left out.
        left_out: reason → records that are left out for it.
        sources_translated: sources that were translated since the command was started last.
        reading_seconds, translating_seconds, writing_seconds: time of the three steps since then.
    """

    files: int = 0
    records: int = 0
    blank: int = 0
    sources: int = 0
    duplicates: int = 0
    translated: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    sources_translated: int = 0
    reading_seconds: float = 0.0
    translating_seconds: float = 0.0
    writing_seconds: float = 0.0

    @property
    def sentence(self) -> str:
        """The figures for people."""
        texts = self.records - self.blank
        share = self.duplicates / texts if texts else 0.0
        files = f"{self.files:,} file{'s' * (self.files != 1)}"
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(self.left_out.items()))
        left_out = f"{sum(self.left_out.values()):,} left out" + (f" ({reasons})" if reasons else "")
        return (
            f"{self.records:,} records in {files}: {self.translated:,} translated, {self.blank:,} blank, {left_out};"
            f" {self.sources:,} different sources, {share:.1%} duplicates"
        )
