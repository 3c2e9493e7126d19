"""The commands that outputs print as the next step.

Each runs in the state in which it is printed; a test runs every one of them. Words in capitals are for the user to
fill in: FILE is a file of texts, WHY a reason.
"""

from typing import Final

STEPS: Final = {
    "init": "headstart init FILE",
    "check": "headstart check",
    "settings": "headstart check --settings",
    "fit": "headstart fit",
    "starts": "headstart starts",
    "predict": "headstart predict FILE predictions.csv --task {task}",
    "try": "headstart predict FILE predictions.csv --task {task} --version {version}",
    "serve": "headstart serve --task {task}",
    "suggest": "headstart suggest FILE --task {task} --count 50",
    "label": "headstart label {file} --task {task}",
    "label-quality": "headstart label-quality --task {task}",
    "undo": "headstart label --undo --task {task}",
    "promote": 'headstart promote --task {task} --version {version} --reason "WHY"',
    "history": "headstart champion --task {task} --history",
    "ui": "headstart ui",
}


def step(name: str, **values: object) -> str:
    """A command of `STEPS` with its values, such as `task`."""
    return STEPS[name].format_map(values)
