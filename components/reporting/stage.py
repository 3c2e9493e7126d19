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
from components.data.scoring import title
from components.data.tasks.budgets import budget_name
from components.registry.decide import Decision, read_decisions
from components.reporting import evaluations as chapter_of
from components.reporting import figures, findings
from components.reporting.advice import summary
from components.reporting.figures import Line
from components.reporting.findings import Drawing, cell
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
    loader = jinja2.PackageLoader("components.reporting", "")
    page = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=marked)
    page.filters |= {"cell": cell, "title": title, "budget": budget_name}
    metrics = ", ".join(f"{task}: {of['titles'][of['main']]}" for task, of in evaluations.items())
    # The whole digest stands in report.json.
    digests = ", ".join(f"{path} (version {digest[:7]})" for path, digest in numbers["data"].items()) or "not recorded"
    setting = f"Data: {digests}. Scores on the test split, mean over seeds with confidence interval ({metrics})."
    html = page.get_template("report.html.j2").render(
        of=chapter_of,
        studies=[study.chapter for study in studies.values()],
        losses=_losses(job, curves),
        numbers=numbers,
        students=job.students,
        champions={task: decisions[task].current_of_run for task in evaluations},
        setting=setting,
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


def _losses(job: ReportJob, curves: dict[str, dict[str, list[float]]]) -> list[Drawing]:
    """The training loss of the language models, a figure for each start."""
    drawings = []
    for start, _ in job.trained:
        lines = {
            family: Line(of["tokens"], of["loss"]) for family in job.families for of in [curves[f"{family}-{start}"]]
        }
        svg = figures.lines(lines, x_label="tokens", y_label="training loss (nats per token)")
        drawings.append(Drawing(svg, f"{start}: training loss."))
    return drawings


def _json(path: Path) -> dict[str, Any]:
    return read_json(path, made_by=f"the stage {path.parent.name}")
