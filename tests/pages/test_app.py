"""The pages of a small finished project, with exact content."""

import html
import json
import re

import numpy as np
import pytest
from fastapi.testclient import TestClient

from components.core.artifacts import read_json
from components.data.tasks.budgets import sample_rows
from components.data.tasks.examples import read_split
from components.data.tasks.kinds import find_kind
from components.pages import retrainings, trying
from components.pages.overview import reasons_of
from components.pages.project import Champion
from components.registry.decide import Decision
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
    assert (
        "Last decision promoted Measured on 24 test rows: comparison 1 on them; each bound is wrong in 2.50% of cases."
        in (shown)
    )
    decided = read_json(finished / "artifacts" / "registry" / "decision.json", made_by="the stage promote")
    decision = decided["decisions"][TASK]
    visible, ledger = shown.split(" Ledger ", 1)
    assert visible.count(f"{decision['story']}.") == 1 and shown.index(decision["story"]) < shown.index(
        "system 2 labels"
    )
    assert decision["reasons"][0] not in visible and decision["reasons"][0] in ledger
    assert "one-sided" not in shown and "macro_f1" not in shown
    assert "of baseline" in shown or "most frequent class" in shown
    assert "What to do next" in shown and "headstart drift --task things" in shown
    assert "95% intervals, mean over 2 seeds, 24 test rows" in shown
    assert re.search(r"tfidf-words 0\.\d{3} \[", shown) and shown.count("(current model)") == 1
    assert shown.index("tfidf-words-characters (current model)") < shown.index("Last decision")
    assert shown.count("beats") <= 1


def test_a_model_that_was_chosen_after_the_last_decision_is_named(client, finished):
    path = finished / "artifacts" / "registry" / "decision.json"
    before = path.read_text(encoding="utf-8")
    content = json.loads(before)
    content["decisions"][TASK] |= {"alias_after": None, "served": None, "story": "there is no current model: few rows"}
    path.write_text(json.dumps(content), encoding="utf-8")
    try:
        shown = text_of(client.get("/").text)
    finally:
        path.write_text(before, encoding="utf-8")
    assert "(version 1) is the current model, chosen after the last decision." in shown
    assert "there is no current model" not in shown


def test_reasons_of_another_change_than_the_last_decision_are_shown():
    champion = Champion(reasons=("a person prefers it",))
    assert reasons_of(champion, Decision(reasons=("it is better",))) == ("a person prefers it",)
    assert reasons_of(champion, Decision(reasons=("a person prefers it",))) == ()


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
    assert "Current model tfidf-words-characters, version 1 animal Confidence" in shown
    assert re.search(r"animal \d\d\.\d% \w+ \d+\.\d% \w+ \d+\.\d% Words", shown), "all classes"
    words = re.search(r"Words the old goat <b> ((?:\w+ [+-]\d\.\d\d ,? ?)+)Blue words", shown)
    assert words
    weights = {word: float(weight) for word, weight in re.findall(r"(\w+) ([+-]\d\.\d\d)", words[1])}
    assert next(iter(weights)) == "goat" and weights["goat"] == max(map(abs, weights.values()))
    assert "&lt;b&gt;" in page and "old <span style" not in page.split("Nearest")[1]
    assert re.search(r"Nearest labelled rows .*goat .* animal", shown)


def test_a_text_of_the_user_is_tried_with_one_click(client, finished):
    page = client.get("/try").text
    forms = re.findall(r'name="text" value="([^"]+)">\s*<button class="example">([^<]+)</button>', page)
    split = read_split(finished / "artifacts" / "examples" / TASK, "test")
    labels = {fields[0]: int(target[0]) for fields, target in zip(split.fields, split.targets, strict=True)}
    assert len(forms) == 3 and {labels[value] for value, _ in forms} == {0, 1, 2}
    assert all(value == shown for value, shown in forms)
    assert "Current model tfidf-words-characters" in text_of(form(client, "/try", task=TASK, text=forms[0][0]))


@pytest.mark.parametrize("kind", ["classification", "pair", "tagging", "choice", "questions"])
def test_the_form_holds_an_input_of_every_kind(kind: str) -> None:
    io = find_kind(kind).io
    fields = io.parse(io.examples[0])
    assert fields and io.parse(trying.input_of(trying.form_of(fields, io), io)) == fields


def test_a_run_has_its_score_decision_data_and_what_has_changed(client, running):
    shown = text_of(client.get("/runs").text)
    assert "Score on test, decision Data Changed since the run before" in shown
    assert re.search(r"retrain running , \d+ s macro F1 0\.870, promoted Data version 0123456", shown)
    assert retrainings._in_short("has not run yet", "out/") == "first run"
    reasons = "has not run yet; out/model deleted; data/things modified; code a.py: f; code b.py: g; setting x: 1 -> 2"
    assert (
        retrainings._in_short(reasons, "out/") == "data/things modified; setting x: 1 -> 2; code of Headstart (2 files)"
    )


def test_characters_that_change_the_direction_are_marks(client):
    page = form(client, "/try", task=TASK, text="the old \u202egoat\u2066")
    assert "\u202e" not in page.replace("the old \u202egoat\u2066</textarea>", "")
    assert "[U+202E]" in page.split('<p class="words">')[1].split("</p>")[0]
    # What is sent again is the text itself.
    assert ">the old \u202egoat\u2066</textarea>" in page


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
    assert "current model, " in page and page.count("marker-end") == 1
    chosen = client.get("/lineage", params={"node": f"version:headstart-{TASK}/1"}).text
    shown = text_of(chosen)
    assert "things, version 1 The current model. digest" in shown and "system tfidf-words-characters" in shown
    assert client.get("/lineage?node=nothing").status_code == 200


def test_invalid_settings_are_a_page_with_the_message(new_client, tmp_path):
    (tmp_path / "params.yaml").write_text("run: {famlies: [ulmfit]}\n")
    answer = new_client.get("/")
    assert answer.status_code == 500 and "famlies" in answer.text and "This page cannot be shown" in answer.text


def test_nothing_is_loaded_from_other_addresses(client):
    for path in ("/", "/runs", "/try", "/errors", "/lineage"):
        page = client.get(path).text
        assert not re.findall(r'(?:src|href|action)="(?!/|#)[^"]*"', page), path


def test_the_labels_that_are_used_are_counted(client, finished, new_client, monkeypatch):
    monkeypatch.chdir(finished)
    shown = text_of(client.get("/label").text)
    split = read_split(finished / "artifacts" / "examples" / TASK, "train")
    used = {row for seed in (0, 1) for row in sample_rows(np.array([t[0] for t in split.targets]), 8, seed=seed)[0]}
    assert 24 < len(used) < 36
    assert (
        f"The last run learned from {len(used)} of 36 rows of train: the budgets of 2 and 8 labels a class, " in shown
    )
    assert "of all seeds together; 24 rows are test. More: data.tasks.things.budgets in params.yaml." in shown
    assert "The last run" not in text_of(new_client.get("/label").text)
