"""Templates of prompts: the text before the answer of a language model, and the text after it."""

from collections.abc import Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Final

from components.core.errors import ConfigError
from components.data.tasks.data import Fields
from components.serving.generation import GAP

#: Texts without content (Zhao et al. 2021).
NEUTRAL: Final = ("N/A", "")
#: The texts before and after an answer.
Context = tuple[str, str]


@dataclass(frozen=True)
class Prompt:
    """The texts before and after the answer; {text} and {second} are the parts of a row."""

    before: str
    after: str | None

    @classmethod
    def of(cls, template: str, *, parts: Sequence[str] = ("text", "second")) -> "Prompt":
        """Parse a text. The answer replaces its [MASK], or follows the text if there is none."""
        before, *after = template.split(GAP)
        if len(after) > 1:
            raise ConfigError(f"--prompt: {template!r} has {len(after)} {GAP}; write one or none")
        try:
            fields = [(name, form) for _, name, form, _ in Formatter().parse(template) if name is not None]
        except ValueError:
            fields = [("", "")]
        if {*fields} - {(part, "") for part in parts}:
            allowed = " and ".join(f"{{{part}}}" for part in parts)
            raise ConfigError(f"--prompt: {template!r}: only {allowed} may be in braces; write {{{{ for a brace")
        return cls(before.rstrip(" "), after[0] if after else None)

    def fill(self, parts: Fields) -> Context:
        """The texts before and after the answer for a row, whose text may have the [MASK] if the template has none."""
        named = dict(zip(("text", "second"), (*parts, ""), strict=False))
        before, after = self.before.format(**named), self.after
        if after is not None:
            return before, after.format(**named)
        before, gap, after = before.partition(GAP)
        return before.rstrip(" ") if gap else before, after

    def lines(self, answered: Sequence[tuple[Fields, str]]) -> str:
        """Demonstrations: rows with their answers, which precede a prompt."""
        return "".join(f"{before} {answer}{after}\n" for of, answer in answered for before, after in [self.fill(of)])
