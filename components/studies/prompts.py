"""Prompts of a language model: templates, and answers for labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import Formatter

from components.core.errors import ConfigError
from components.data.tasks.data import Fields
from components.serving.generation import GAP


@dataclass(frozen=True)
class Prompt:
    """A template: the texts before and after the answer; {text} and {second} are the parts of a row."""

    before: str
    after: str

    @classmethod
    def of(cls, template: str, *, parts: Sequence[str] = ("text", "second")) -> Prompt:
        """Parse a text. The answer replaces its [MASK], or follows the text if there is none."""
        before, *after = template.split(GAP)
        if len(after) > 1:
            raise ConfigError(f"--prompt: {template!r} has {len(after)} {GAP}; write one or none")
        try:
            named = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
            template.format(text="", second="")
        except (LookupError, ValueError, TypeError, AttributeError):
            named = {""}
        if not named <= set(parts):
            allowed = " and ".join(f"{{{part}}}" for part in parts)
            raise ConfigError(f"--prompt: {template!r}: only {allowed} may be in braces; write {{{{ for a brace")
        return cls(before.rstrip(), after[0] if after else "")

    def fill(self, parts: Fields) -> tuple[str, str]:
        """The texts before and after the answer for a row."""
        named = {"text": parts[0], "second": parts[1] if len(parts) > 1 else ""}
        return self.before.format(**named), self.after.format(**named)


def label_words(labels: Sequence[str], answers: str) -> dict[str, str]:
    """Label -> its answer: the words of its name, unless `answers` has another."""
    words = {label: label.replace("_", " ").replace("-", " ") for label in labels}
    for entry in filter(str.strip, answers.split(";")):
        label, _, answer = (part.strip() for part in entry.partition("="))
        if not answer or label not in words:
            raise ConfigError(f"--answers: {entry.strip()!r}: write label=words for labels among {', '.join(labels)}")
        words[label] = answer
    return words
