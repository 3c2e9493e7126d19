"""Labels that are given while documents are removed: none is lost, and no removed text comes back."""

import threading
from pathlib import Path

import pytest

from components.core.artifacts import changing_data
from components.core.errors import DataError
from components.labelling.answers import Answer, merge
from components.labelling.rows import read_rows
from components.pipeline.lineage import editing
from components.pipeline.lineage import forget as removal
from components.settings.params import Params
from tests.example_task import rows
from tests.labelling.conftest import project as project  # a fixture

GONE, NEW = rows(1)[0]["text"], "a text that nobody has seen"


def remove(params: Params, *texts: str) -> Path:
    plan = removal.make_plan(params, texts)
    return removal.forget(params, plan, texts)


def train(params: Params) -> list[str]:
    return [row.fields[0] for row in read_rows("things", params.data.tasks["things"], splits=("train",))]


@pytest.mark.usefixtures("unregistered")
def test_a_label_given_while_a_file_is_rewritten_is_kept(project, monkeypatch):
    params = project()
    answering = threading.Thread(target=lambda: merge(params, [Answer((NEW,), ("fruit",))]))

    def slowly(partial, path, *, empty):
        """The file without the record is written and not yet in place: a person answers."""
        if path.name == "train.jsonl":
            answering.start()
            answering.join(0.5)
        replace(partial, path, empty=empty)

    replace = editing._replace
    monkeypatch.setattr(editing, "_replace", slowly)
    remove(params, GONE)
    answering.join()
    assert NEW in train(params) and GONE not in train(params)


@pytest.mark.usefixtures("unregistered")
def test_a_text_that_is_labelled_after_the_search_is_removed_too(project):
    params = project()
    plan = removal.make_plan(params, [NEW])
    merge(params, [Answer((NEW,), ("fruit",))])
    assert plan.search.raw == []
    removal.forget(params, plan, [NEW])
    assert NEW not in train(params) and not Path("task/labels-things.ledger.jsonl").exists(), (
        "its only answer is removed"
    )


@pytest.mark.usefixtures("unregistered")
def test_a_removed_text_is_not_labelled_again(project):
    params = project()
    certificate = remove(params, GONE)
    with pytest.raises(DataError, match=f"was removed by `headstart forget` .{certificate.stem}.; leave the answer"):
        merge(params, [Answer((GONE.upper() + "!",), ("fruit",))])
    assert merge(params, [Answer((NEW,), ("fruit",))]).added == 1
    removal.write_atomic(Path(".headstart/forget/pending.json"), f'["{NEW}, and two more words"]')
    with pytest.raises(DataError, match="a removal that is not completed"):
        merge(params, [Answer((f"{NEW}, and two more words",), ("fruit",))])


def test_locks_are_taken_in_one_order(tmp_path):
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    order: list[int] = []

    def hold(number, wanted):
        for _ in range(50):
            with changing_data(tmp_path / f"repository-{number}", wanted):
                order.append(number)
                order.append(number)

    threads = [threading.Thread(target=hold, args=(0, folders)), threading.Thread(target=hold, args=(1, folders[::-1]))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert order[::2] == order[1::2] and len(order) == 200
