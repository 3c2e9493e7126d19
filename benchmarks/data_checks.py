"""False alarms and detected changes of the checks of new data, on resamples of labelled tasks.

    python benchmarks/data_checks.py [--params params.yaml] [--seeds 20] [--rows 1000] [--record NAME]

Unchanged data: two random halves of the rows, and two halves by cluster where there are clusters, are compared as the
old and the new version with the shipped limits. Changed data: the new half has another share of its most frequent
class, or texts in another language. German texts are sentences below; another script is German in Cyrillic letters.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from components.data_checks.compare import compare
from components.data_checks.measure import items_of
from components.data_checks.statistics import Item, measure
from components.reporting.recording import add_record_option, record
from components.reporting.results import Column
from components.settings.checks import ChecksSettings
from components.settings.loading import load_params
from components.tasks.kinds import find_kind

GERMAN = (
    "Der Name des Speichers, in dem die Daten abgelegt werden.",
    "Die Anzahl der Ergebnisse, die eine Seite höchstens enthält.",
    "Gibt an, ob die Verschlüsselung für diesen Dienst aktiviert ist.",
    "Eine Liste der Kennungen aller Instanzen, die gelöscht werden sollen.",
    "Der Zeitpunkt, zu dem die Anfrage gestellt wurde.",
    "Wenn dieser Wert nicht angegeben wird, verwendet das System die Voreinstellung.",
    "Beschreibt den aktuellen Zustand des Auftrags und den Grund für einen Fehler.",
    "Die Adresse des Benutzers, an den die Nachricht gesendet wird.",
    "Das Kennwort muss mindestens acht Zeichen lang sein und darf keine Leerzeichen enthalten.",
    "Nur die Schlüssel, die in der Tabelle vorhanden sind, werden zurückgegeben.",
)
CYRILLIC = str.maketrans("abcdefghijklmnoprstuvwz", "абцдефгхийклмнопрстувшз")
Items = Sequence[Item]
Change = Callable[[Items, random.Random], Items]


def in_another_language(share: float, *, cyrillic: bool = False) -> Change:
    """Replace the texts of about `share` of the rows by German ones."""

    def change(items: Items, generator: random.Random) -> Items:
        def text(number: int) -> str:
            german = f"{' '.join(generator.sample(GERMAN, 2))} {number}"
            return german.lower().translate(CYRILLIC) if cyrillic else german

        return [
            replace(item, text=text(number)) if generator.random() < share else item
            for number, item in enumerate(items)
        ]

    return change


def without_class(share: float) -> Change:
    """Remove about `share` of the rows of the most frequent class."""

    def change(items: Items, generator: random.Random) -> Items:
        labels = [item.labels for item in items]
        most = max(sorted(set(labels)), key=labels.count)
        return [item for item in items if item.labels != most or generator.random() >= share]

    return change


def unchanged(items: Items, generator: random.Random) -> Items:
    """The same rows."""
    return items


CHANGES: dict[str, Change] = {
    "unchanged": unchanged,
    "most frequent class: half of its rows removed": without_class(0.5),
    "another script: 10% of the rows": in_another_language(0.1, cyrillic=True),
    "German: 10% of the rows": in_another_language(0.1),
    "German: 20% of the rows": in_another_language(0.2),
    "German: 40% of the rows": in_another_language(0.4),
}


def halves(items: Items, generator: random.Random, *, clusters: bool) -> tuple[list[Item], list[Item]]:
    """Two random halves of the rows, or of their clusters."""
    if not clusters:
        chosen = set(generator.sample(range(len(items)), len(items) // 2))
        flags = [number in chosen for number in range(len(items))]
    else:
        names = sorted({str(item.group) for item in items})
        first = set(generator.sample(names, len(names) // 2))
        flags = [str(item.group) in first for item in items]
    pairs = list(zip(items, flags, strict=True))
    return [item for item, flag in pairs if flag], [item for item, flag in pairs if not flag]


def main() -> None:
    """Compare resamples, print and record the shares of comparisons with a violation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--params", type=Path, default=Path("params.yaml"))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=1000, help="rows of a split, at most")
    add_record_option(parser)
    arguments = parser.parse_args()
    settings = ChecksSettings()
    counts = {name: {"rows": [0, 0], "clusters": [0, 0]} for name in CHANGES}
    for task, source in load_params(arguments.params).data.tasks.items():
        examples = find_kind(source.kind).read(task, source)
        for split in ("train", "dev", "test"):
            items = list(items_of(getattr(examples, split), examples.labels, source))
            items = random.Random(0).sample(items, min(arguments.rows, len(items)))
            ways = ["rows", "clusters"] if len({item.group for item in items}) >= 20 else ["rows"]
            for way in ways:
                for name, change in CHANGES.items():
                    for seed in range(arguments.seeds):
                        generator = random.Random(f"{task} {split} {seed}")
                        old, new = halves(items, generator, clusters=way == "clusters")
                        found = compare(
                            measure(change(new, generator)), measure(old), settings, unit=split, where="", named=False
                        )
                        # Halves by cluster differ in size.
                        found = [finding for finding in found if finding.check != "rows"]
                        counts[name][way][0] += bool(found)
                        counts[name][way][1] += 1
                        if found and name == "unchanged":
                            print(task, split, way, seed, *found, sep="; ")
    shares = {name: {way: hits / most for way, (hits, most) in ways.items() if most} for name, ways in counts.items()}
    for name, values in shares.items():
        print(f"{name:50s}", *(f"{way} {value:.1%}" for way, value in values.items()))
    number = {way: most for way, (_, most) in counts["unchanged"].items()}
    record(
        arguments.record,
        title="Shares of comparisons of two halves of a split with a violation of a check",
        row_title="change of the new half",
        columns=[
            Column(name=way, title=f"halves of {way}", format=".1%") for way in ("rows", "clusters") if number[way]
        ],
        values=shares,
        seeds=list(range(arguments.seeds)),
        notes=f"{number['rows']} comparisons of rows and {number['clusters']} of clusters in each line; splits of the "
        f"tasks of {arguments.params}, at most {arguments.rows} rows of each; default limits.",
    )


if __name__ == "__main__":
    main()
