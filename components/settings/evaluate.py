"""`evaluate` and `leakage`: how systems are scored, and test texts in what they were trained on."""

from typing import Annotated, Literal

from pydantic import Field

from components.settings.section import BlockName, Section


class EvaluateSettings(Section):
    """How systems are scored and compared."""

    #: Ensemble name -> members whose mean class probabilities are scored as one more system: blocks of `pretrain`, or
    #: baselines by name (`tfidf-words`).
    ensembles: dict[BlockName, Annotated[list[str], Field(min_length=2)]] = {}


#: `report`: counted in the report. `refuse`: in addition, a model whose ancestors saw such a text is not promoted.
Rule = Literal["report", "refuse"]


class LeakageSettings(Section):
    """What happens if texts of test occur in what a model or its ancestors were trained on. Unlabelled domain text that
    contains the inputs of the test rows makes the evaluation transductive, which is often intended; therefore the
    default is to report. Rows of a task's own train split are governed by `data.tasks.<name>.overlap`."""

    #: Texts that occur word by word: as a document, or, from eight words on, inside of one.
    exact: Rule = "report"
    #: Near copies of a document, by MinHash.
    near: Rule = "report"
