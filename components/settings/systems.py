"""The identity of a system: what is trained, from which initialisation, and how. Results name it by family and start
(`ulmfit-adapted-after-imdb-frozen`); only this module takes such a name apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from components.settings.section import Start

#: How the start is continued before a task is learned: together with the tasks of a group, after an intermediate task,
#: or from the predictions of teachers.
Way = Literal["", "with", "after", "from"]
#: Initialisation with the adapted encoder after continued pretraining on the task's own texts (`adapt_task`).
TASK_ADAPTED: Final = "task-adapted"
#: Initialisations, longer names first: one is a suffix of another.
STARTS: Final = (TASK_ADAPTED, *get_args(Start))
#: Suffix of systems whose encoder stays frozen (`finetune.<name>.frozen`).
FROZEN: Final = "-frozen"


@dataclass(frozen=True)
class System:
    """A system with a language model.

    Attributes:
        family: block of pretraining.
        start: initialisation of the encoder.
        way: how the start is continued.
        group: group of `together`, intermediate task or block of `distil`, by `way`.
        frozen: whether the encoder is not fine-tuned.
    """

    family: str
    start: str
    way: Way = ""
    group: str = ""
    frozen: bool = False

    @classmethod
    def of(cls, family: str, variant: str) -> System:
        """The system of a family and a start as in results, `variant`."""
        tuned = variant.removesuffix(FROZEN)
        for way in get_args(Way)[1:]:
            start, mark, group = tuned.partition(f"-{way}-")
            if mark:
                return cls(family, start, way, group, frozen=tuned != variant)
        return cls(family, tuned, frozen=tuned != variant)

    @classmethod
    def named(cls, name: str) -> System:
        """The system of a name. Any other name, such as `tfidf-words`, is the `start` of a system without a family."""
        system = cls.of("", name)
        for start in STARTS:
            if system.start.endswith(f"-{start}"):
                return replace(system, family=system.start.removesuffix(f"-{start}"), start=start)
        return system

    @property
    def variant(self) -> str:
        """The start as in results."""
        continued = f"-{self.way}-{self.group}" if self.way else ""
        return f"{self.start}{continued}{FROZEN if self.frozen else ''}"

    @property
    def tuned(self) -> System:
        """The system whose encoder is fine-tuned, otherwise the same."""
        return replace(self, frozen=False)

    def __str__(self) -> str:
        return f"{self.family}-{self.variant}" if self.family else self.variant
