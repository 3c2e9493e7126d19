"""`headstart lectures`: what lectures on transfer learning say, beside what the studies measure on a run.

lectures.json          claim -> {agrees, command, lead, text, tables, captions, seconds, commit, processor, date}
lectures.md            the same as one page, in the order of the lectures
lectures/CLAIM-1.svg   its figures
"""

import datetime
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from components.core.artifacts import read_json, write_atomic, write_json
from components.core.processors import processor_name
from components.reporting.findings import Findings, Table
from components.reporting.results import commit_of
from components.studies.command import STUDIES
from components.studies.frame import Outputs
from components.studies.occurrences import SEPARATE

Numbers = Mapping[str, Any]
PAGE: Final = "lectures.md"
FILE: Final = "lectures.json"
FOLDER: Final = "lectures"
#: The runs for which the options of the claims are meant.
PARAMS: Final = Path("experiments/lectures/params.yaml")
THAI: Final = Path("experiments/thai/params.yaml")
#: Maximum numbers of figures and of rows of a table that the page shows.
FIGURES, ROWS = 2, 40


@dataclass(frozen=True)
class Claim:
    """What a lecture says, and the study that measures it.

    Attributes:
        options: of the study, on the run of `settings`; on other runs it has its defaults.
        agrees: numbers of the study -> whether they agree; None: left to the reader.
        examples: tasks beyond run.tasks whose rows the study reads.
        settings: the run on which the claim is measured, unless `--params` names another.
        otherwise: why the models of that run may not agree.
    """

    name: str
    lecture: str
    says: str
    study: str
    options: Mapping[str, Any] = field(default_factory=dict)
    agrees: Callable[[Numbers], bool] | None = None
    examples: Sequence[str] = ()
    settings: Path = PARAMS
    otherwise: str = ""

    def options_on(self, params: Path) -> Mapping[str, Any]:
        """The options of the study on a run."""
        return self.options if params == self.settings else {}

    def command(self, params: Path) -> str:
        """The command of the study on a run."""
        flags = (part for name, value in self.options_on(params).items() for part in (f"--{name}", str(value)))
        return shlex.join(["headstart", "study", self.study, *flags, "--params", str(params)])


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _fewer_unknown(reports: Numbers) -> bool:
    pieces, words = reports["general-wordpiece"], reports["general-word"]
    more = pieces["pieces_per_word"] > words["pieces_per_word"]
    return bool(pieces["unknown_rate"] < words["unknown_rate"] / 10 and more)


def _higher_start(family: str) -> Callable[[Numbers], bool]:
    def agrees(tasks: Numbers) -> bool:
        return all(of[family]["adapted"]["labels"]["start"]["holds"] for of in tasks.values())

    return agrees


def _order_is_seen(numbers: Numbers) -> bool:
    ends = {name: (len(of), _mean(of[0]), _mean(of[-1])) for name, of in numbers["encoders"].items()}
    static = [first for layers, first, _ in ends.values() if layers == 1]
    contextual = [last for layers, _, last in ends.values() if layers > 1]
    return max(static) == min(static) == 0.5 and min(contextual) > 0.6


def _every_technique_helps(numbers: Numbers) -> bool:
    whole, *others = (_mean(of) for of in numbers["scores"].values())
    return max(others) < whole


def _best_of_thai(tasks: Numbers) -> bool:
    (systems,) = (of["systems"] for of in tasks.values())
    scores = {name: [budget["mean"] for budget in of["scores"].values()] for name, of in systems.items()}
    rivals = [of for name, of in scores.items() if name.startswith(("fasttext-", "svm-", "tfidf-"))]
    return all(best > max(of) for best, *of in zip(scores["ulmfit-adapted"], *rivals, strict=True))


def _better_by_size(tasks: Numbers) -> bool:
    """Whether every larger model has a lower perplexity, and the largest a higher score than the smallest."""
    (systems,) = (of["systems"] for of in tasks.values())
    trained = sorted((of for of in systems.values() if of["start"] == "adapted"), key=lambda of: of["parameters"])
    losses = [of["perplexity_per_word"] for of in trained]
    smallest, largest = (list(trained[end]["scores"].values())[-1]["mean"] for end in (0, -1))
    return losses == sorted(losses, reverse=True) and largest > smallest


def _longer_context(numbers: Numbers) -> bool:
    recl = {name: of["0.1"] for group in numbers["groups"] for name, of in group["recl"].items()}
    longest = max(recl[name] for name in recl if name.startswith("transformer-xl"))
    return longest > max(length for name, length in recl.items() if not name.startswith("transformer-xl"))


def _more_contextual(encoders: Numbers) -> bool:
    ends = [(of["layers"][0], of["layers"][-1]) for of in encoders.values() if len(of["layers"]) > 1]
    return all(last["adjusted_self_similarity"] < first["adjusted_self_similarity"] for first, last in ends)


def _upper_layers(numbers: Numbers) -> bool:
    scores = [{choice: _mean(values) for choice, values in of.items()} for of in numbers["scores"].values()]
    return all(of["first"] == min(of.values()) and of["mix"] >= of["last"] for of in scores)


def _ten_times(tasks: Numbers) -> bool:
    ratios = [of["label_efficiency"]["ulmfit"]["adapted"][0]["against"]["ulmfit-scratch"] for of in tasks.values()]
    return all((of["ratio"]["mean"] or of["ratio"]["most"]) >= 10 for of in ratios)


def _some_class_hurt(numbers: Numbers) -> bool:
    budgets = [of[-1] for task in numbers["transfer"].values() for of in task.values()]
    return any(start["hurts"] for at in budgets for part in at["parts"] for start in part["starts"].values() if start)


def _specific_above(numbers: Numbers) -> bool:
    scores = {name: {int(n): _mean(of) for n, of in series.items()} for name, series in numbers["scores"].items()}
    top = max(scores["AnB"])
    base, falls = scores["BnB"][0], scores["AnB"][top] < scores["AnB"][min(scores["AnB"])]
    return bool(falls and scores["AnB"][top] < base and scores["AnB+"][top] >= scores["AnB"][top])


def _no_better_than_chance(numbers: Numbers) -> bool:
    best, score = numbers["best_on_dev"]
    return bool(numbers["accuracy"][best][score]["mean"] < numbers["guessing"] + 0.1)


#: Why small models may not agree with what is said about large ones.
SIZE: Final = (
    "The language models of this run read a few million pieces; published ones read a hundred million and more."
)
#: In the order of the lectures.
CLAIMS: Final[Mapping[str, Claim]] = {
    claim.name: claim
    for claim in (
        Claim(
            "vocabulary",
            "Words and pieces",
            "A vocabulary of sub-word pieces leaves a tenth of the unknown words that a vocabulary of words leaves, or "
            "fewer, at the cost of more pieces per word (Devlin et al. 2019).",
            "vocabulary",
            agrees=_fewer_unknown,
        ),
        Claim(
            "neighbours",
            "Word vectors",
            "The nearest neighbours of a word in a table of word vectors are words of the same kind (Mikolov et al. "
            "2013).",
            "neighbours",
            {"encoder": "word2vec-adapted", "words": "terrible,actor,comedy,director", "count": 30},
        ),
        Claim(
            "pretrained-vectors",
            "Word vectors",
            "With few labels, a classifier on pretrained word vectors is better than on vectors learned from the "
            "labels alone.",
            "benefits",
            agrees=_higher_start("word2vec"),
            otherwise=SIZE,
        ),
        Claim(
            "topics",
            "Word vectors",
            "Topics of texts are learned from fewer labels with pretrained word vectors than without (Joulin et al. "
            "2017; Mikolov et al. 2018).",
            "benefits",
            {"task": "truevoice-topic"},
            agrees=_higher_start("fasttext"),
            settings=THAI,
        ),
        Claim(
            "ngrams",
            "Language models",
            "A neural language model has a lower perplexity than n-grams of the same text (Bengio et al. 2003).",
            "ngrams",
            agrees=lambda models: all(
                of["model_per_word"] < of["ngrams_per_word"] for of in models.values() if of["model_per_word"]
            ),
            settings=THAI,
            otherwise="General text is read once here, and n-grams need no second pass; on the calls, which are read "
            "several times, as by Bengio et al., the largest model is level with n-grams.",
        ),
        Claim(
            "effective-context",
            "Language models",
            "Transformer-XL uses a longer context than an LSTM and a Transformer of the same vocabulary (Dai et al. "
            "2019, section 4.4).",
            "effective-context",
            agrees=_longer_context,
        ),
        Claim(
            "memory",
            "Language models",
            "A Transformer-XL that carries its memory evaluates text faster than one that computes every context anew "
            "(Dai et al. 2019, section 4.6).",
            "effective-context",
            agrees=lambda numbers: all(
                of["times"] > 1 for name, of in numbers["cost"].items() if name.startswith("transformer-xl")
            ),
        ),
        Claim(
            "contextual",
            "Contextual representations",
            "Upper layers are more contextual: the vectors of a word in different sentences are less alike than in the "
            "embedding (Ethayarajh 2019).",
            "contextuality",
            {"word": "film"},
            agrees=_more_contextual,
        ),
        Claim(
            "word-order",
            "Contextual representations",
            "A mean of word vectors is the same in every order of the words; contextual vectors tell a sentence from "
            "its words in a random order.",
            "word-order",
            agrees=_order_is_seen,
            settings=THAI,
        ),
        Claim(
            "senses",
            "Contextual representations",
            "Contextual vectors of an ambiguous word form one cluster a sense.",
            "contextuality",
            {"encoder": "elmo-pretrained", "word": "bank", "corpus": "general"},
            agrees=lambda encoders: all(of["senses"]["silhouette"] >= SEPARATE for of in encoders.values()),
        ),
        Claim(
            "layers",
            "Contextual representations",
            "As features for names, the embedding layer is worst, and a learned mix of all layers is not worse than "
            "the last one (Peters et al. 2018; Devlin et al. 2019, table 7).",
            "layers",
            {"task": "wnut17", "encoder": "elmo-pretrained", "budget": 200},
            agrees=_upper_layers,
            examples=["wnut17"],
        ),
        Claim(
            "three-benefits",
            "Transfer",
            "Transfer gives a higher start, a higher slope and a higher asymptote (Torrey and Shavlik 2010).",
            "benefits",
            agrees=lambda tasks: all(
                benefit["holds"] for of in tasks.values() for benefit in of["ulmfit"]["adapted"]["labels"].values()
            ),
            otherwise=SIZE,
        ),
        Claim(
            "label-efficiency",
            "Transfer",
            "With few labels, an adapted language model is as good as a model from scratch with ten times as many or "
            "more (Howard and Ruder 2018, section 5).",
            "label-efficiency",
            agrees=_ten_times,
            otherwise=SIZE,
        ),
        Claim(
            "ablation",
            "Transfer",
            "Pretraining, adaptation and every technique of fine-tuning add to the score of ULMFiT (Howard and Ruder "
            "2018, section 5).",
            "ablation",
            {"task": "truevoice-action", "encoder": "ulmfit-adapted", "budget": 20},
            agrees=_every_technique_helps,
            settings=THAI,
            otherwise="The pooled features make the scores of a small model; the rates and the order of unfreezing "
            "hardly change them.",
        ),
        Claim(
            "thai",
            "Transfer",
            "With few labels of Thai telephone calls, ULMFiT, pretrained on Thai news, adapted to the calls and "
            "unfrozen gradually, is better than fastText and linear models of words.",
            "systems",
            {"task": "truevoice-action"},
            agrees=_best_of_thai,
            settings=THAI,
            otherwise=SIZE,
        ),
        Claim(
            "sizes",
            "Transfer",
            "Larger models of one family have a lower loss and a higher score after fine-tuning (Turc et al. 2019; "
            "Kaplan et al. 2020).",
            "systems",
            {"task": "truevoice-action", "family": "ulmfit"},
            agrees=_better_by_size,
            settings=THAI,
        ),
        Claim(
            "negative-transfer",
            "Transfer",
            "Transfer can hurt: some part of the data is predicted better from scratch.",
            "negative-transfer",
            agrees=_some_class_hurt,
        ),
        Claim(
            "transferability",
            "Transfer",
            "Layers become specific from the bottom to the top: the more frozen layers of another task, the lower the "
            "score; trained further, they do not hurt (Yosinski et al. 2014).",
            "transferability",
            {"task": "trec", "other": "sst2", "encoder": "ulmfit", "budget": 20, "epochs": 4},
            agrees=_specific_above,
            examples=["trec"],
        ),
        Claim(
            "which-source",
            "Transfer",
            "The evidence of the labels given frozen features (LogME) ranks encoders as fine-tuning does (You et al. "
            "2021).",
            "which-source",
            agrees=lambda numbers: bool(numbers["evidence"]["spearman"] > 0.5),
            otherwise="The encoders of this run hardly differ after fine-tuning, by less than the intervals of their "
            "scores, and what is equal cannot be ranked.",
        ),
        Claim(
            "zero-shot",
            "Large language models",
            "Without labels, only large language models answer: a small one is hardly better than chance (Brown et al. "
            "2020, figure 1.3).",
            "zero-shot",
            {"encoder": "gpt-adapted", "prompt": "{text} it was", "answers": "0=terrible; 1=great"},
            agrees=_no_better_than_chance,
        ),
    )
}


def measured(
    claim: Claim, outputs: Outputs, *, params: Path, output: Path, done: dict[str, Findings]
) -> dict[str, Any]:
    """Run the study of a claim and write its figures below `output`; returns the claim's entry of lectures.json.

    Args:
        done: command -> findings of studies that need not run again; this claim's is added.
    """
    began, run = time.perf_counter(), claim.command(params)
    if run not in done:
        done[run] = STUDIES[claim.study](outputs, **claim.options_on(params))
    chapter, agrees = done[run].chapter, None
    # Where the run lacks what the claim is about, the reader decides.
    with suppress(KeyError, IndexError, ValueError, TypeError):
        agrees = None if claim.agrees is None else claim.agrees(done[run].numbers)
    folder = output / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for number, drawing in enumerate(chapter.figures[:FIGURES], 1):
        write_atomic(folder / f"{claim.name}-{number}.svg", drawing.svg + "\n")
    return {
        "agrees": agrees,
        "command": run,
        "lead": chapter.lead,
        "text": chapter.text,
        "tables": [asdict(table) for table in chapter.tables],
        "captions": [drawing.caption for drawing in chapter.figures[:FIGURES]],
        "seconds": round(time.perf_counter() - began),
        "commit": commit_of(Path(__file__).parent),
        "processor": processor_name(Path("/proc/cpuinfo")),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def store(entry: Mapping[str, Any], claim: Claim, output: Path) -> None:
    """Add or replace the entry of a claim in lectures.json, and write the page again."""
    path = output / FOLDER / FILE
    entries = read_json(path, made_by="`headstart lectures`", missing_ok=True) | {claim.name: dict(entry)}
    write_json(path, {name: entries[name] for name in CLAIMS if name in entries})
    write_atomic(output / PAGE, page(entries))


def page(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """lectures.md from the content of lectures.json."""
    shown = [claim for claim in CLAIMS.values() if claim.name in entries]
    words = {True: "yes", False: "no", None: "for the reader"}
    summary = Table(
        ["lecture", "claim", "agrees"],
        [[c.lecture, f"[{c.name}](#{c.name})", words[entries[c.name]["agrees"]]] for c in shown],
    )
    lines = [
        "# The lectures, measured",
        "",
        "What lectures on transfer learning say, beside what small models of two runs measure. `headstart lectures`",
        "repeats everything, `headstart lectures CLAIM` one claim; `--params` names a run of your own.",
        "",
        *_markdown(summary),
    ]
    for claim in shown:
        entry = entries[claim.name]
        # The reason is about the claim's own run.
        explained = entry["agrees"] is False and entry["command"] == claim.command(claim.settings)
        lead = [claim.otherwise] * (explained and claim.otherwise != "") + entry["lead"]
        verdict = {True: "Agrees.", False: "Does not agree.", None: "For the reader to judge."}[entry["agrees"]]
        lines += ["", f"## {claim.name}", "", claim.says, "", f"**{verdict}** {' '.join(lead)}", ""]
        for table in entry["tables"]:
            lines += [*_markdown(Table(**table)), ""]
        for number, caption in enumerate(entry["captions"], 1):
            lines += [f"![{caption}]({FOLDER}/{claim.name}-{number}.svg)", ""]
        commit, mark, _ = (entry["commit"] or "unknown").partition("-")
        measured_by = f"`{entry['command']}`; {entry['processor']}; commit {commit[:7]}{mark and '-dirty'}"
        lines += [*entry["text"], "", f"<sub>{measured_by}; {entry['date']}; {entry['seconds']} s.</sub>"]
    return "\n".join(lines) + "\n"


def _markdown(table: Table) -> list[str]:
    def row(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    left_out = [f"{len(table.rows) - ROWS} more rows."] if len(table.rows) > ROWS else []
    return [
        *([f"{table.title}:", ""] if table.title else []),
        row(table.columns),
        row(["---"] * len(table.columns)),
        *map(row, table.rows[:ROWS]),
        *(["", *left_out] if left_out else []),
    ]
