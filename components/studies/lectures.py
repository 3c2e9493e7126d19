"""`headstart lectures`: what lectures on transfer learning say, beside what the studies measure on a run. The claims
and their rules are written in `experiments/lectures/claims.yaml` before a run.

lectures.json          claim -> {measure, command, run, tables, captions, seconds, commit, processor, date}
lectures.md            the same as one page, in the order of the lectures
lectures/CLAIM.md      all tables of a claim, where the page shows a part
lectures/CLAIM-1.svg   its figure
"""

import datetime
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import jinja2
import yaml
from pydantic import BeforeValidator

from components.core.artifacts import read_json, write_atomic, write_json
from components.core.commits import commit_of
from components.core.errors import ConfigError
from components.core.processors import processor_name
from components.data.scoring.intervals import Interval
from components.reporting.findings import Findings, Table
from components.settings.section import Section
from components.studies.command import STUDIES
from components.studies.frame import Outputs, cell, find

PAGE = "lectures.md"
FILE = Path("lectures", "lectures.json")
CLAIMS = Path("experiments/lectures/claims.yaml")
#: The run for which the options of most claims are meant.
PARAMS = Path("experiments/lectures/params.yaml")
#: Maximum number of rows of a table that the page shows.
ROWS = 8
AGREES, NOT, UNDECIDED = "agrees", "does not agree", "not shown at this size"
UNMEASURED = "not measured by this rule"
_NUMBER = re.compile(r"[+-]?(?:inf|[\d,]*\.?\d+)")
Entry = Mapping[str, Any]
OneOf = Annotated[list[str], BeforeValidator(lambda of: [of] if isinstance(of, str) else of)]


class Cells(Section):
    """Cells of a table: those of `column` in the rows with these values (one of several) of other columns."""

    table: str = ""
    where: Mapping[str, OneOf] = {}
    column: str = ""
    times: float = 1.0

    def rows(self, table: Table) -> list[dict[str, str]]:
        """The rows of a table that have the cells."""
        rows = (dict(zip(table.columns, cells, strict=True)) for cells in table.rows if self.table in table.title)
        return [
            row for row in rows if row.get(self.column) and all(row.get(key) in of for key, of in self.where.items())
        ]

    def of(self, tables: Sequence[Table], *, each: bool) -> dict[str, Interval]:
        """Name of the row -> value. Numbers without an interval are no evidence and left out.

        Args:
            each: raise a LookupError unless every cell has an interval, and each combination of `where` has one cell.
        """
        fitting = [(table.title, row) for table in tables for row in self.rows(table)]
        several, values = len({title for title, _ in fitting}) > 1, dict[str, Interval]()
        for title, row in fitting:
            if value := interval_in(row[self.column]):
                # The cells in words name the row.
                worded = [of for of in row.values() if re.match(r"[^\W\d]", of) and "[" not in of][:3]
                name = ", ".join([title] * several + (worded or [" = ".join(next(iter(row.items())))]))
                # Cells that no word tells apart.
                name += f" ({len(values) + 1})" * (name in values)
                values[name] = Interval(*(self.times * of for of in astuple(value)))
        keys = [tuple(row[key] for key in self.where) for _, row in fitting]
        wanted = sorted(product(*self.where.values())) if self.where else keys
        if each and not (len(values) == len(keys) and sorted(keys) == wanted):
            raise LookupError(self.column)
        return values


class Rule(Cells):
    """When a claim agrees: every cell, or any, is `above` or `below` a bound with its whole interval. With `minus`, the
    cell's difference to another one, whose interval contains that of the paired difference if they are not negatively
    correlated."""

    above: float | None = None
    below: float | None = None
    any: bool = False
    minus: Cells | None = None

    def judge(self, tables: Sequence[Table]) -> tuple[str, str]:
        """One of the answers, and the decisive cell. Raises LookupError: the tables have no such cell, or without `any`
        not one, with an interval, for each combination of `where`."""
        values, about, other = self.of(tables, each=not self.any), self.column, Interval(0.0, 0.0, 0.0)
        if not values:
            raise LookupError(self.column)
        if self.minus is not None:
            inherited = {"table": self.minus.table or self.table, "column": self.minus.column or self.column}
            ((rival, other),) = self.minus.model_copy(update=inherited).of(tables, each=True).items()
            times = "" if self.minus.times == 1 else f"{self.minus.times:g} times "
            about += f" minus {times}{self.minus.column or 'that'} of {rival}:"
        values = {
            name: Interval(of.mean - other.mean, of.low - other.high, of.high - other.low)
            for name, of in values.items()
        }
        sign, bound = (1, self.above) if self.above is not None else (-1, self.below or 0.0)
        # Margins of the claim and of its opposite.
        margins = {name: sorted((sign * (of.low - bound), sign * (of.high - bound))) for name, of in values.items()}
        name, answer = (max if self.any else min)(margins, key=lambda of: margins[of][0]), UNDECIDED
        if margins[name][0] > 0:
            answer = AGREES
        elif (all if self.any else any)(high < 0 for _, high in margins.values()):
            name, answer = min(margins, key=lambda of: margins[of][1]), NOT
        return answer, f"{name}: {about} {cell(values[name])}"


class Claim(Section):
    """What a lecture says, and the study that measures it.

    Attributes:
        says: the statement.
        needs: what the run must have; `settings`: dotted keys of it and their values.
        measure: what is measured; an entry with another measure, study, options or run is not judged.
        options: of the study, on the run; on other runs it has its defaults.
        run: settings of the run on which the claim is measured, unless `--params` names another.
        examples: tasks beyond run.tasks whose rows the study reads.
        stages: names or groups of the stages whose outputs the study reads.
        rules: all must agree.
        table: the part of a title by which the page chooses the table that it shows.
    """

    section: str
    says: str
    needs: str
    settings: Mapping[str, Any] = {}
    measure: str
    study: str
    options: Mapping[str, str | int | float] = {}
    run: Path = PARAMS
    examples: Sequence[str] = ()
    stages: Sequence[str]
    rules: Sequence[Rule]
    table: str = ""

    def options_on(self, params: Path) -> Mapping[str, Any]:
        """The options of the study on a run."""
        return self.options if params == self.run else {}

    def command(self, params: Path) -> str:
        """The command of the study on a run."""
        flags = [part for name, value in self.options_on(params).items() for part in (f"--{name}", str(value))]
        return shlex.join(["headstart", "study", self.study, *flags, "--params", str(params)])

    def check(self, outputs: Outputs) -> None:
        """Raise a ConfigError if the run lacks a setting that the claim needs."""
        settings: Any = outputs.params.model_dump(mode="json")
        for key, wanted in self.settings.items():
            value = reduce(lambda of, part: of.get(part) if isinstance(of, dict) else None, key.split("."), settings)
            if value != wanted and not (wanted == "any" and value):
                raise ConfigError(f"{key}: is {value}; this claim needs {self.needs}")

    def judge(self, entry: Entry | None) -> tuple[str, str]:
        """The answer and the number that decides it. Nothing is judged that was measured otherwise (another measure,
        study, options or run of the claim), or by a commit with changes."""
        if entry is None or (entry["commit"] or "-dirty").endswith("-dirty"):
            return UNMEASURED, ""
        command = self.command(Path(shlex.split(entry["command"])[-1]))
        if (self.measure, str(self.run), command) != (entry["measure"], entry.get("run"), entry["command"]):
            return UNMEASURED, ""
        tables = [Table(**table) for table in entry["tables"]]
        try:
            answers = [rule.judge(tables) for rule in self.rules]
            return min(answers, key=lambda of: (NOT, UNDECIDED, AGREES).index(of[0]))
        except (LookupError, ValueError):
            return UNDECIDED, ""


def interval_in(text: str) -> Interval | None:
    """`0.5 [0.4, 0.6]` -> its interval, `more than 80` and `inf` are infinite; None for a text without an interval."""
    numbers = _NUMBER.findall(re.sub(r"more than [\d.,]*\d", "inf", text))
    if "[" not in text or len(numbers) != 3:
        return None
    return Interval(*(float(number.replace(",", "")) / (100 if "%" in text else 1) for number in numbers))


def read_claims(root: Path = Path()) -> dict[str, Claim]:
    """The claims by name, in the order of the lectures."""
    if not (path := root / CLAIMS).is_file():
        raise ConfigError(f"{path}: does not exist; run the command in the repository of Headstart")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {name: Claim.model_validate(claim) for name, claim in content.items()}


def measure(
    name: str, claims: Mapping[str, Claim], outputs: Outputs, *, params: Path, output: Path, done: dict[str, Findings]
) -> Entry:
    """Run the study of a claim, add or replace its entry in lectures.json, with its figure, and write the page again.
    Returns the entry.

    Args:
        done: command -> findings of studies that need not run again; this claim's is added.
    """
    claim, began = claims[name], time.perf_counter()
    if (run := claim.command(params)) not in done:
        done[run] = find(STUDIES[claim.study], outputs, **claim.options_on(params))
    chapter, folder = done[run].chapter, (output / FILE).parent
    entry = {
        "measure": claim.measure,
        "command": run,
        "run": str(claim.run),
        "tables": [asdict(table) for table in chapter.tables],
        "captions": [drawing.caption for drawing in chapter.figures[:1]],
        "seconds": round(time.perf_counter() - began),
        "commit": commit_of(Path(__file__).parent),
        "processor": processor_name(Path("/proc/cpuinfo")),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for drawing in chapter.figures[:1]:
        write_atomic(folder / f"{name}-1.svg", drawing.svg + "\n")
    entries = _entries(output) | {name: entry}
    write_json(output / FILE, {of: entries[of] for of in claims if of in entries})
    write_pages(claims, output)
    return entry


def _entries(output: Path) -> dict[str, Any]:
    return read_json(output / FILE, made_by="`headstart lectures`", missing_ok=True)


def write_pages(claims: Mapping[str, Claim], output: Path) -> None:
    """Judge the entries of lectures.json by the present rules, and write the page and the long tables."""
    for name, text in pages(claims, _entries(output)).items():
        write_atomic(output / name, text)


def pages(claims: Mapping[str, Claim], entries: Mapping[str, Entry]) -> dict[str, str]:
    """Path -> content of lectures.md and of the files beside it."""
    loader = jinja2.PackageLoader("components.studies", "")
    template = jinja2.Environment(loader=loader, keep_trailing_newline=True).get_template(f"{PAGE}.j2")
    files, described, folder = dict[str, str](), [], FILE.parent
    for name, claim in claims.items():
        answer, number = claim.judge(entries.get(name))
        of: dict[str, Any] = {"name": name, "claim": claim, "answer": answer, "number": number}
        if answer != UNMEASURED:
            tables = [Table(**table) for table in entries[name]["tables"]]
            of |= {"entry": entries[name], "further": len(tables) > 1}
            for table in [table for table in tables if claim.table in table.title][:1]:
                # The rows that decide are first.
                rows = [tuple(row.values()) for rule in claim.rules for row in rule.rows(table)]
                shown = list(dict.fromkeys([*rows, *map(tuple, table.rows)]))[:ROWS]
                of |= {"shown": Table(table.columns, shown, table.title)}
                of["further"] |= len(table.rows) > ROWS
            if of["further"]:
                files[str(folder / f"{name}.md")] = template.render(name=name, whole=tables)
        described.append(of)
    return {PAGE: template.render(claims=described, folder=folder)} | files
