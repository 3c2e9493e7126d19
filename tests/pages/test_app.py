"""The pages of a small finished project, with exact content."""

from __future__ import annotations

import html
import re

import pytest
from fastapi.testclient import TestClient

from components.core.artifacts import read_json
from components.pages.overview import TaskView
from components.pages.project import Champion
from tests.pages.conftest import TASK, text_of


def form(client: TestClient, path: str, **fields: str) -> str:
    secret = re.search(r'name="csrf" value="([^"]+)"', client.get(path).text)
    assert secret
    answer = client.post(path, data={"csrf": secret[1], **fields}, headers={"Origin": "http://localhost"})
    assert answer.status_code == 200, answer.text
    return answer.text


def test_the_overview_says_what_is_served_and_why(client, finished):
    shown = text_of(client.get("/").text)
    assert f"Current model tfidf-words-characters Version 1 of headstart-{TASK}, since 20" in shown
    assert "Last decision promoted" in shown
    decided = read_json(finished / "artifacts" / "registry" / "decision.json", made_by="the stage promote")
    (reason, *_) = decided["decisions"][TASK]["reasons"]
    visible, ledger = shown.split(" Ledger ", 1)
    assert visible.count(reason) == 1, "the reason of the decision is that of the champion"
    assert reason in ledger
    assert "of baseline" in shown or "most frequent class" in shown
    assert "What to do next" in shown and "headstart drift --task things" in shown
    assert "95% intervals, mean over 2 seeds, 24 test rows" in shown
    assert re.search(r"tfidf-words 0\.\d{3} \[", shown) and shown.count("(current model)") == 1
    assert shown.index("tfidf-words-characters (current model)") < shown.index("Last decision")
    assert shown.count("beats") <= 1


def test_reasons_of_another_change_than_the_last_decision_are_shown():
    champion = Champion(reasons=("a person prefers it",))
    view = TaskView(TASK, champion, {"reasons": ["it is better"]}, {}, None, None, [], [])
    assert view.reasons == ("a person prefers it",)


def test_every_page_is_useful_before_the_first_run(new_client, tmp_path):
    expected = {
        "/": "headstart check headstart plan headstart retrain",
        "/runs": "This command trains, and the run appears here: headstart retrain",
        "/try": "There is no model to try: no model is registered yet. This command trains and promotes one: headstart",
        "/errors": "There are no predictions to look at. This command trains and evaluates: headstart retrain",
        "/lineage": "No output exists yet",
    }
    for path, sentence in expected.items():
        answer = new_client.get(path)
        assert answer.status_code == 200
        assert sentence in text_of(answer.text), path
    assert new_client.get("/report").status_code == 404
    assert not (tmp_path / "mlflow.db").exists(), "reading creates no registry"
    assert not (tmp_path / ".headstart").exists() and not (tmp_path / "artifacts").exists()


def test_a_live_run_shows_progress_and_curves(client, running):
    assert "2026-11-24 03:00:00 retrain running" in text_of(client.get("/runs").text)
    page = client.get(f"/runs/{running}").text
    shown = text_of(page)
    assert "ingest@domain finished" in shown and "new text" in shown
    assert re.search(r"adapt@ulmfit \d+ s so far, about 10 h 0 min left\. 0% of the usual time loss 2\.25", shown)
    assert "2 stages left, about 10 h 0 min and 1 of unknown time." in shown
    assert "data-live" in page and page.count("<svg") == 1


def test_an_unknown_run_is_not_found(client):
    assert client.get("/runs/nobody").status_code == 404
    assert client.get("/runs/x'%20or%20'1'='1").status_code == 404


def test_a_text_is_predicted_with_its_reasons_and_neighbours(client):
    page = form(client, "/try", task=TASK, text="the old goat <b>")
    shown = text_of(page)
    assert "Champion tfidf-words-characters, version 1 animal Confidence" in shown
    weights = {word: float(weight) for weight, word in re.findall(r'title="([+-][\d.]+)"[^>]*>([^<]+)<', page)}
    assert max(weights, key=lambda word: weights[word]) == "goat" and weights["goat"] > 0
    assert "the change of the answer without it" in shown
    assert "&lt;b&gt;" in page and "<b>" not in page.split("<main", 1)[1].split("Nearest", 1)[0]
    assert re.search(r"Nearest labelled rows .*goat .* animal", shown)


def test_the_errors_are_listed_by_certainty_and_filtered(client):
    page = client.get("/errors?system=tfidf-words&budget=8&seed=0").text
    shown = text_of(page)
    actual = re.search(r"(\d+) wrong answers in 24 rows", shown)
    assert actual
    # The three rows with `iron`, whose label is wrong.
    confident = re.findall(r"True: animal \. Predicted: metal , (0\.\d\d)", shown)
    assert len(confident) == 3 and confident == sorted(confident, reverse=True)
    assert 'aria-label="3 rows of animal predicted as metal"' in page
    link = re.search(r'href="(/errors\?[^"]*true=animal[^"]*predicted=metal[^"]*)#rows"', page)
    assert link
    filtered = text_of(client.get(html.unescape(link[1])).text)
    assert "3 wrong answers here True: animal . Predicted: metal ." in filtered
    assert "iron" in filtered
    parts = text_of(client.get("/errors?system=tfidf-words&budget=8&seed=0&slice=even").text)
    assert "Slice: even ." in parts
    mine = text_of(client.get("/errors?system=tfidf-words&budget=8&seed=0&split=selection").text)
    assert re.search(r"\d+ wrong answers? in 24 rows", mine)


@pytest.mark.parametrize("query", ["system=../../etc", "budget=abc&seed=9", "start=-4", "start=9999", "task=nothing"])
def test_unknown_values_of_the_address_are_replaced(client: TestClient, query: str) -> None:
    assert client.get(f"/errors?{query}").status_code == 200


def test_the_lineage_marks_the_served_version(client):
    page = client.get("/lineage").text
    assert page.count("<rect") == 2, "the data and the version"
    assert "served, " in page and page.count("marker-end") == 1
    chosen = client.get("/lineage", params={"node": f"version:headstart-{TASK}/1"}).text
    shown = text_of(chosen)
    assert "things, version 1 The served version. digest" in shown and "system tfidf-words-characters" in shown
    assert client.get("/lineage?node=nothing").status_code == 200


def test_invalid_settings_are_a_page_with_the_message(new_client, tmp_path):
    (tmp_path / "params.yaml").write_text("run: {famlies: [ulmfit]}\n")
    answer = new_client.get("/")
    assert answer.status_code == 500 and "famlies" in answer.text and "This page cannot be shown" in answer.text


def test_nothing_is_loaded_from_other_addresses(client):
    for path in ("/", "/runs", "/try", "/errors", "/lineage"):
        page = client.get(path).text
        assert not re.findall(r'(?:src|href|action)="(?!/|#)[^"]*"', page), path
