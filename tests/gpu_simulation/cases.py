"""The cases of the simulation."""

from dataclasses import dataclass, field
from typing import Any

from components.learners.task_models.kinds import TASKS
from components.models import FAMILIES as TABLE

#: Steps between two reads of the loss, in place of the loop's 20.
READ_EVERY = 3
FAMILIES, KINDS = sorted(TABLE), sorted(TASKS)
#: Families and kinds in float32, whose answers are compared with those on the CPU.
ANSWERED = (("bert", "questions"), ("bert", "tagging"), ("ulmfit", "classification"))
#: Families without a table of pieces that could start from word vectors, or that are word vectors.
WITHOUT_VECTORS = ("elmo", "flair", "glove")


@dataclass(frozen=True)
class Case:
    """A run on the simulated device.

    Attributes:
        family: of the model.
        precision: of training; pretraining has `bf16` and adaptation `float32`.
        kind: of the task; empty for pretraining with adaptation.
        model: sizes and options of the model, besides the family's test sizes.
        settings: of fine-tuning, besides those of `tests.example_task`.
        answers: whether the answers of the model before fine-tuning are compared with those on the CPU.
    """

    family: str
    precision: str = ""
    kind: str = ""
    model: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    answers: bool = False

    @property
    def name(self) -> str:
        """Unique among all cases."""
        options = [f"{key}={value}" for key, value in {**self.model, **self.settings}.items()]
        return " ".join(filter(None, [self.family, self.kind, *options, self.precision]))


def pretraining() -> list[Case]:
    """Every family, and options with code of their own."""
    options: list[tuple[str, dict[str, Any]]] = [(family, {}) for family in FAMILIES]
    options += [
        ("gpt", {"band": 4}),
        ("transformer-xl", {"cutoffs": (8, 16), "divide": 2}),
        ("fasttext", {"sparse": True}),
    ]
    return [Case(family, model=model) for family, model in options]


def finetuning() -> list[Case]:
    """In bf16, every kind with a Transformer, some with an LSTM, every family with a kind of texts or of units, and the
    options of heads, windows and losses with code of their own; some kinds in float32."""
    actual = [
        *(Case("bert", "bf16", kind) for kind in KINDS),
        *(Case("ulmfit", "bf16", kind) for kind in ("choice", "classification", "pair", "questions", "tagging")),
        *(Case(family, "float32", kind, answers=True) for family, kind in ANSWERED),
    ]
    others = [family for family in FAMILIES if family not in ("bert", "ulmfit")]
    kinds = ("classification", "tagging")
    actual += [Case(family, "bf16", kinds[number % 2]) for number, family in enumerate(others)]
    options: list[tuple[str, str, dict[str, Any]]] = [
        ("bert", "tagging", {"tagger": "bilstm_crf"}),
        ("ulmfit", "tagging", {"tagger": "bilstm_crf"}),
        ("bert", "tagging", {"tagger": "crf", "max_length": 10}),
        ("gpt", "classification", {"lm_weight": 0.5}),
        ("bert", "classification", {"chunk": 8, "chunks_learned": 1, "max_length": 60}),
        ("ulmfit", "classification", {"chunk": 8, "chunks_learned": 1, "max_length": 60}),
        ("transformer-xl", "classification", {"chunk": 8, "chunks_learned": 1, "max_length": 60}),
        ("bert", "questions", {"max_length": 14}),
        ("bert", "classification", {"layers": "mix"}),
        ("bert", "classification", {"method": "features", "head_hidden": 8}),
        ("bert", "classification", {"head_norm": "batch"}),
        ("bert", "classification", {"unfreezing": "chain_thaw", "unfreeze_epochs": 0.2}),
        ("bert", "classification", {"pooling": "concat", "layers": "all"}),
    ]
    return actual + [Case(family, "bf16", kind, settings=changes) for family, kind, changes in options]
