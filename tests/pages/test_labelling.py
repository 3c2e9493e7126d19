"""The labelling page: a queue, answers that are written at once, skip and undo."""

import re
import shutil
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from components.labelling.rows import read_rows
from components.settings.loading import load_params
from tests.conftest import until
from tests.pages.conftest import TASK, client_of, text_of


@pytest.fixture
def project(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished project, whose data may be changed, as the working directory."""
    shutil.copytree(finished / "data", tmp_path / "data")
    (tmp_path / ".dvc").mkdir()
    settings = (finished / "params.yaml").read_text().replace(str(finished), str(tmp_path))
    (tmp_path / "params.yaml").write_text(settings)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def send(client: TestClient, action: str, **fields: str) -> str:
    """Press a button; returns the page that follows."""
    page = client.get("/label").text
    secret = re.search(r'name="csrf" value="([^"]+)"', page)
    assert secret
    key = re.search(r'name="key" value="([^"]+)"', page)
    sent = {"csrf": secret[1], "task": TASK, "action": action, "key": key[1] if key else "", **fields}
    answer = client.post("/label", data=sent, headers={"Origin": "http://localhost"})
    assert answer.status_code == 303 and answer.headers["location"] == f"/label?task={TASK}"
    return client.get("/label").text


def shown(page: str) -> str:
    actual = re.search(r'<p class="text big">([^<]*)</p>', page)
    assert actual, page
    return actual[1]


def opened(project: Path) -> TestClient:
    """The page with the chosen texts."""
    client = client_of(project, write=True)
    assert "Choose 50 texts" in client.get("/label").text
    send(client, "choose")
    until(lambda: "Choosing the texts" not in client.get("/label").text, limit_s=60)
    return client


def train(project: Path) -> list[dict[str, str]]:
    source = load_params(project / "params.yaml").data.tasks[TASK]
    rows = read_rows(TASK, source, splits=("train",))
    return [{"text": row.fields[0], "label": (row.labels or ("",))[0]} for row in rows]


def test_answers_are_written_and_taken_back(project):
    before = train(project)
    client = opened(project)
    page = client.get("/label").text
    first = shown(page)
    assert "36 labelled texts in the file of train" in text_of(page)
    keys = dict(re.findall(r'value="(\w+)" data-key="(\d)"', page))
    assert keys == {"animal": "1", "fruit": "2", "metal": "3"}
    waiting = int(re.search(r"(\d+) texts left, 0 labelled", text_of(page))[1])

    page = send(client, "answer", label="metal")
    assert train(project)[len(before) :] == [{"text": first, "label": "metal"}]
    second = shown(page)
    assert second != first
    assert f"{waiting - 1} texts left, 1 labelled in this session" in text_of(page) and "Last: metal." in text_of(page)
    page = send(client, "skip")
    assert shown(page) not in (first, second) and "Last: skipped." in text_of(page)
    assert len(train(project)) == len(before) + 1

    assert shown(send(client, "undo")) == second
    page = send(client, "undo")
    assert shown(page) == first and train(project) == before
    assert 'data-key="u" disabled' in page
    assert shown(send(client, "undo")) == first, "nothing is left to take back"
    for label in ("metal", "fruit"):
        send(client, "answer", label=label)
    assert len(train(project)) == len(before) + 2
    send(client, "undo")
    assert shown(send(client, "undo")) == first and train(project) == before


def test_a_form_that_is_sent_twice_answers_once(project):
    before = len(train(project))
    client = opened(project)
    key = re.search(r'name="key" value="([^"]+)"', client.get("/label").text)
    assert key
    send(client, "answer", label="metal", key=key[1])
    send(client, "answer", label="metal", key=key[1])
    assert len(train(project)) == before + 1


def test_an_unknown_label_is_refused_unless_it_is_new(project):
    before = len(train(project))
    client = opened(project)
    page = send(client, "answer", label="metla")
    assert 'role="alert"' in page and "metla" in page and len(train(project)) == before
    assert "metla" in send(client, "skip", key="of an earlier page") and "metla" in send(client, "undo")
    page = send(client, "new", label="colour")
    assert train(project)[-1]["label"] == "colour" and 'value="colour" data-key="2"' in page


def test_read_only_pages_write_nothing(project):
    client = client_of(project)
    page = client.get("/label").text
    assert "The pages were started read-only" in page and "headstart ui --write" in page
    secret = re.search(r'name="csrf" value="([^"]+)"', client.get("/try").text)
    assert secret
    answer = client.post("/label", data={"csrf": secret[1], "action": "choose"})
    assert answer.status_code == 403 and "read-only" in answer.text


def test_a_kind_that_cannot_be_labelled_says_so(project):
    settings = (project / "params.yaml").read_text()
    (project / "params.yaml").write_text(settings.replace("selection: budget", "selection: budget\n      kind: choice"))
    page = client_of(project, write=True).get("/label").text
    assert "cannot be labelled here" in page
