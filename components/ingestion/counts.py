"""The totals of a corpus: documents read, kept and dropped by reason."""

from __future__ import annotations

from dataclasses import dataclass, field

#: Reasons for which a document is dropped, in the order in which they are checked.
REASONS = ("empty", "too_short", "exact_duplicate", "near_duplicate")


@dataclass
class Counts:
    """Totals over all runs that have added to the corpus: documents, characters, bytes, lines and files."""

    documents: int = 0
    kept: int = 0
    heldout: int = 0
    characters: int = 0
    raw_bytes: int = 0
    bad_bytes: int = 0
    bad_lines: int = 0
    files: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))

    def metrics(self) -> dict[str, int]:
        """The counts as one flat mapping, for metrics.json."""
        numbers = {name: value for name, value in vars(self).items() if name != "dropped"}
        return numbers | {f"dropped_{reason}": count for reason, count in self.dropped.items()}

    def summary(self) -> str:
        """One line: documents read, kept and dropped by reason; bytes replaced."""
        dropped = [f"{number:,} {reason.replace('_', ' ')}" for reason, number in self.dropped.items() if number]
        return (
            f"{self.documents:,} documents read, {self.kept:,} kept, {self.heldout:,} of them held out"
            + (f"; dropped: {', '.join(dropped)}" if dropped else "")
            + (f"; {self.bad_bytes:,} bytes that are not UTF-8 were replaced" if self.bad_bytes else "")
        )
