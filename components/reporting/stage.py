"""The stage `report`: the results of a run as one self-contained HTML page with figures, and the same numbers as
JSON."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import jinja2
import pandas
from pydantic import Field

from components.core.artifacts import read_json, writing
from components.core.data_version import data_versions
from components.registry.decide import Decision, read_decisions
from components.reporting import evaluations as chapter_of
from components.reporting import figures, findings
from components.reporting.advice import summary
from components.reporting.figures import Line
from components.reporting.findings import Chapter, Drawing, Table
from components.reporting.marks import marked
from components.settings.section import Section, Start
from components.settings.systems import TASK_ADAPTED

KIND = "report"
TRAINED = (("pretrained", "pretrain"), ("adapted", "adapt"))


class ReportJob(Section):
    """Inputs of the stage. `students`: system -> its teachers, of the systems that have learned from some
    (`distil`)."""

    out: Path
    families: list[str]
    tasks: list[str]
    starts: list[Start]
    corpora: list[str] = Field(default_factory=lambda: ["general", "domain"])
    adapt_task: list[str] = Field(default_factory=list)
    parents: dict[str, list[str]] = Field(default_factory=dict)
    students: dict[str, list[str]] = Field(default_factory=dict)
    output: Path
    decision: Path = Path("decision.json")
    data: dict[str, Path] = Field(default_factory=dict)
    project: Path = Path()

    @property
    def trained(self) -> list[tuple[str, str]]:
        """Initialisations with a trained language model, and the stage that trains it."""
        return [(start, stage) for start, stage in TRAINED if start in self.starts]

    def numbers(self, folder: str, stage: str, family: str, start: str, *, name: str) -> Path:
        """The metrics or the curve of an encoder; a computed encoder (`static`) has them in its directory."""
        if family in self.parents:
            return self.out / "encoder" / family / start / name
        return self.out / folder / stage / f"{family}{Path(name).suffix}"


def report(job: ReportJob) -> Path:
    """Write report.html and report.json; returns their directory."""
    evaluations = {task: _json(job.out / "evaluation" / task / "evaluation.json") for task in job.tasks}
    decisions = dict.fromkeys(job.tasks, Decision()) | read_decisions(job.decision)
    summaries = {task: summary(task, of, decisions[task]) for task, of in evaluations.items()}
    versions, studies = data_versions(job.data, project=job.project, out=job.out), findings.read_all(job.out)
    models, curves = _models(job)
    numbers: dict[str, Any] = {
        "data": {version.path: version.digest for version in versions.values()},
        "summary": summaries,
        "curves": curves,
        "evaluation": evaluations,
        "language_models": models,
        "checks": read_json(job.out / "checks" / "checks.json", made_by="the stage checks", missing_ok=True),
        "corpora": {corpus: _json(job.out / "metrics" / "ingest" / f"{corpus}.json") for corpus in job.corpora},
        "vocabularies": {path.stem: _json(path) for path in sorted((job.out / "metrics" / "tokenizer").glob("*.json"))},
        "leakage": {of.parent.name: _json(of) for of in sorted((job.out / "leakage").glob("[!.]*/leakage.json"))},
        "studies": {name: study.numbers for name, study in studies.items()},
    }
    scores = [chapter_of.scores(task, of, champion=decisions[task].current_of_run) for task, of in evaluations.items()]
    # The first screen of a task: the answer, its figure and its table.
    first = [(chapter.figures.pop(0), chapter.tables.pop(0)) for chapter in scores]
    chapters = [
        *scores,
        *([_language_models(models, curves)] if models else []),
        *(chapter_of.details(task, evaluation) for task, evaluation in evaluations.items()),
        *(study.chapter for study in studies.values()),
        _data(numbers, students=job.students),
        *([_leakage(numbers["leakage"])] if numbers["leakage"] else []),
    ]
    loader = jinja2.PackageLoader("components.reporting", "")
    page = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=marked)
    metrics = ", ".join(f"{task}: {of['titles'][of['main']]}" for task, of in evaluations.items())
    # The whole digest stands in report.json.
    digests = ", ".join(f"{path} (version {digest[:7]})" for path, digest in numbers["data"].items()) or "not recorded"
    setting = f"Data: {digests}. Scores on the test split, mean over seeds with confidence interval ({metrics})."
    html = page.get_template("report.html.j2").render(
        chapters=chapters, summaries=list(zip(summaries.values(), first, strict=True)), setting=setting
    )
    with writing(job.output, kind=KIND) as draft:
        (draft.path / "report.html").write_text(html, encoding="utf-8")
        text = json.dumps(numbers, indent=1, ensure_ascii=False) + "\n"
        (draft.path / "report.json").write_text(text, encoding="utf-8")
    return job.output


#: Name of a language model -> its metrics; and its curve, the tokens and the loss.
Models = tuple[dict[str, dict[str, Any]], dict[str, dict[str, list[float]]]]


def _models(job: ReportJob) -> Models:
    models, curves = {}, {}
    for family, (start, stage) in product(job.families, job.trained):
        name = f"{family}-{start}"
        models[name] = _json(job.numbers("metrics", stage, family, start, name="metrics.json"))
        table = pandas.read_csv(job.numbers("curves", stage, family, start, name="curve.csv"))
        curves[name] = table[["tokens", "loss"]].dropna().astype(float).to_dict("list")
    for task, family in product(job.adapt_task, job.families):
        path = job.out / "metrics" / "adapt" / f"{family}-{task}.json"
        models[f"{family}-{TASK_ADAPTED}-{task}"] = _json(path)
    return models, curves


def _language_models(models: dict[str, dict[str, Any]], curves: dict[str, dict[str, list[float]]]) -> Chapter:
    general = [f"general_{when}_perplexity_per_word" for when in ("before", "after")]
    rows = [
        {
            "model": name,
            "parameters": of["parameters"],
            "tokens": of["tokens"],
            "time": f"{of['seconds'] / 60:.1f} min",
            "tokens/s": of["tokens_per_second"],
            "precision": of["precision"],
            "perplexity per word": of.get("perplexity_per_word") or of.get("bits_per_character"),
            "general: before, after": ", ".join(f"{of[key]:,.1f}" for key in general if all(map(of.get, general))),
        }
        | ({"BLEU": of.get("bleu")} if any("bleu" in each for each in models.values()) else {})
        for name, of in models.items()
    ]
    chapter = Chapter("Language models")
    forms = {"tokens/s": ",.0f", "perplexity per word": ",.2f", "BLEU": ".1f"}
    chapter.tables.append(Table.of(rows, forms=forms))
    chapter.text.append(
        "Perplexity per word is measured on held-out text of the last training corpus, BLEU on its held-out pairs. "
        "`general` is the perplexity on general text before and after adaptation; an increase is forgetting."
    )
    for start in dict.fromkeys(name.rpartition("-")[2] for name in curves):
        lines = {
            name.removesuffix(f"-{start}"): Line(of["tokens"], of["loss"])
            for name, of in curves.items()
            if name.endswith(f"-{start}")
        }
        svg = figures.lines(lines, x_label="tokens", y_label="training loss (nats per token)")
        chapter.figures.append(Drawing(svg, f"{start}: training loss."))
    return chapter


def _data(numbers: dict[str, Any], *, students: dict[str, list[str]]) -> Chapter:
    chapter = Chapter("Data")
    chapter.text = [f"{name} has learned the predictions of {' and '.join(of)}." for name, of in students.items()]
    for first, title, of_run in (("corpus", "Ingestion", "corpora"), ("vocabulary", "Vocabularies", "vocabularies")):
        columns = numbers[of_run]
        keys = [key for key, value in next(iter(columns.values()), {}).items() if isinstance(value, int | float)]
        rows = [
            {first: key.replace("_", " ")} | {name: of.get(key) for name, of in columns.items()}
            for key in keys
            if any(of.get(key) for of in columns.values())
        ]
        if rows:
            chapter.tables.append(Table.of(rows, title, dict.fromkeys(columns, ".4g")))
    if checked := numbers["checks"]:
        for unit in checked.values():
            accepted = f" ({unit['accepted']})" if unit["accepted"] else ""
            chapter.text += [f"{finding}{accepted}" for finding in unit["findings"]]
        rows = [
            {
                "input": name,
                "rows": unit["rows"],
                "compared with": unit["compared_with"] or "first version",
                "violations": len(unit["findings"]) or "none",
            }
            for name, unit in checked.items()
        ]
        chapter.tables.append(Table.of(rows, "Checks of new data"))
    return chapter


def _leakage(leaks: dict[str, dict[str, Any]]) -> Chapter:
    chapter = Chapter("Leakage")
    chapter.text.append(
        "Rows of dev and test whose text occurs in what a model or its ancestors were trained on: word by word "
        "(exact), or as a near copy of a document. Unlabelled copies make an evaluation transductive: on other texts "
        "the scores may be lower. Copies in the task's own train rows are governed by the setting overlap."
    )
    sources = [(task, source, of) for task, each in leaks.items() for source, of in each.get("sources", {}).items()]
    rows = [
        {"source": f"{task}: {source}", "documents": of["documents"]}
        | {f"{split} {kind}": of[split][kind] for split in ("dev", "test") for kind in ("exact", "near")}
        for task, source, of in sources
    ]
    examples = [
        {
            "task": task,
            "test row": str(copy["row"]),
            "copy": f"{source}: {copy['document']}",
            "similarity": copy["similarity"],
        }
        for task, source, of in sources
        for copy in of["test"]["examples"][:3]
    ]
    for task, content in leaks.items():
        chapter.text += [
            f"{task}: {name} was imported; whether its training text has the test rows is unknown."
            for name in content.get("unknown", [])
        ]
        chapter.lead += [
            f"{task}: {system} is not promoted: {of['refused']}."
            for system, of in content.get("systems", {}).items()
            if of["refused"]
        ]
    chapter.tables.append(Table.of(rows))
    if examples:
        chapter.tables.append(Table.of(examples, "Examples", {"similarity": ".2f"}))
    return chapter


def _json(path: Path) -> dict[str, Any]:
    return read_json(path, made_by=f"the stage {path.parent.name}")
