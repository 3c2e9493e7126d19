"""A document is removed from everything below a repository, and the next training does not see it."""

import json
from pathlib import Path

import pytest

from components.core.data_version import read_yaml
from components.data.matching import Texts
from components.pipeline.lineage.forget import RECORDS, STATE, forget, make_plan, plan_lines, wanted_texts
from components.pipeline.lineage.places import Cache
from components.pipeline.lineage.trace import document_lines, trace_document, trace_model, tree
from components.registry.ledger import Ledger
from components.registry.tracking import connect

from .conftest import SECRET

WORDS = "Agnetha Quisling lives"

#: Its fixture runs a whole pipeline.
pytestmark = pytest.mark.timeout(900)


@pytest.mark.slow
def test_a_document_is_traced_and_removed_from_everything(project, tmp_path_factory):
    params, root = project.params, project.root
    before = project.holders(WORDS)
    for place in (
        "data/domain",
        "data/tasks",
        "artifacts/corpus/domain",
        "artifacts/examples",
        ".dvc/cache",
        "labelled",
    ):
        assert any(path.startswith(place) for path in before), place
    remote = root.parent / f"{root.name}-remote"
    project.dvc("remote", "add", "-d", "store", str(remote))
    project.dvc("push", "-q")

    # Forwards: where it is, and who has learned from it: version 1, from scratch, its vocabulary.
    actual = trace_document(params, "data/domain/aws/b.jsonl.gz:10")
    assert actual["files"] == ["data/domain/aws/b.jsonl.gz", "data/tasks/aws-type/train.jsonl"]
    assert {(single["where"], single["split"]) for single in actual["copies"]} == {
        ("corpus/domain", "train"), ("examples/aws-type", "train")}  # fmt: skip
    learned = {single["version"]: (single["sources"], single["certain"]) for single in actual["versions"]}
    assert learned == {
        "headstart-aws-type/1": (["corpus/domain", "examples/aws-type"], True),
        "headstart-aws-type/2": (["corpus/domain", "examples/aws-type"], True),
        "headstart-aws-type/3": (["examples/aws-type"], True),
        "headstart-ulmfit-adapted/1": (["corpus/domain", "examples/aws-type"], True),
    }
    assert "- version: headstart-aws-type/2" in document_lines(actual)

    # Backwards: raw files, shards, code, libraries, machine, parents.
    traced = trace_model(params, "aws-type:2")
    made = traced["provenance"]
    assert set(made["corpora"]["domain"]["files"]) == {"a.jsonl", "b.jsonl.gz"}
    assert made["tasks"]["aws-type"]["rows"]["train"] == 61
    assert set(made["code"]) >= {"finetune@aws-type-ulmfit-adapted", "adapt@ulmfit", "ingest@domain"}
    assert made["libraries"]["torch"] and made["machine"]["python"]
    assert [parent["model"] for parent in traced["parents"]] == ["headstart-ulmfit-adapted/1"]
    lines = tree(traced)
    assert "        documents: 310" in lines and any("b.jsonl.gz: " in line for line in lines)
    assert "parents:" in lines and "- model: headstart-ulmfit-adapted/1" in lines
    assert trace_model(params, "artifacts/encoder/ulmfit/adapted")["provenance"]["corpora"].keys() == {
        "general", "domain"}  # fmt: skip

    # A dry run changes nothing.
    wanted = wanted_texts(params, ["data/domain/aws/b.jsonl.gz:10"])
    assert wanted == [SECRET]
    plan = make_plan(params, wanted)
    lines = list(plan_lines(plan))
    assert "- labelled.csv" in lines and "- artifacts/tokens/domain-wordpiece" in lines
    assert {item.what for item in plan.search.objects} == {"text", "tokens", "keys", "derived"}
    assert project.holders(WORDS) == before and not (root / RECORDS).exists()

    path = forget(params, plan, wanted, reason="request 7")
    assert project.holders(WORDS) == []
    assert [file for file in remote.rglob("*") if file.is_file() and b"Quisling" in file.read_bytes()] == []
    assert {item.md5 for item in plan.search.objects}.isdisjoint(
        file.parent.name + file.name for file in remote.rglob("*") if file.is_file()
    )
    assert not (root / STATE / "pending.json").exists()
    assert (root / "labelled.csv").read_text() == "text,label\nother,two\n"
    certificate = json.loads(path.read_text())
    assert certificate["records"] == {
        "data/domain/aws/b.jsonl.gz": 1, "data/tasks/aws-type/train.jsonl": 1, "labelled.csv": 1}  # fmt: skip
    assert certificate["searched_again"]["still_held_by"] == []
    assert "quisling" not in path.read_text().lower()
    assert {single["version"] for single in certificate["versions"]} == set(learned)

    # The taints are in the ledger and in the registry.
    registry = connect(params.registry)
    state = Ledger(registry).state("headstart-aws-type")
    assert len(state.tainted) == 4
    assert registry.get("headstart-aws-type", "2").tags["tainted"] == certificate["certificate"]

    # The next training is made without it.
    project.dvc("add", "-q", "data")
    project.run()
    assert project.holders(WORDS) == []
    again = trace_document(params, SECRET)
    assert (again["files"], again["copies"]) == ([], [])
    new = trace_model(params, "aws-type:5")
    assert new["provenance"]["tasks"]["aws-type"]["rows"]["train"] == 60
    assert new["tags"]["digest"] not in state.tainted and new["parents"][0]["model"] == "headstart-ulmfit-adapted/2"
    assert new["provenance"]["corpora"]["domain"]["counts"]["documents"] == 309
    assert read_yaml(Path("data.dvc")) is not None


def test_what_was_learned_from_a_document_leaves_the_cache(tmp_path, monkeypatch):
    """Of two versions the first has the document; both have the same vocabulary and a file of the model in common."""
    monkeypatch.chdir(tmp_path)

    def files(**md5s: str) -> list[dict[str, str]]:
        return [{"path": path, "relpath": path, "md5": md5} for path, md5 in md5s.items()]

    def stages(version: int) -> dict[str, dict[str, list[dict[str, str]]]]:
        rows, model = f"a{version}0.dir", f"b{version}0.dir"
        return {
            "examples": {"deps": files(raw=f"{version}"), "outs": files(examples=rows)},
            "tokenizer": {"deps": files(examples=rows), "outs": files(tokenizer="dd0")},
            "baseline": {"deps": files(examples=rows, tokenizer="dd0"), "outs": files(finetuned=model)},
        }

    objects = {"aa1": SECRET, "aa2": "other", "bb1": {}, "bb2": {}, "cc0": {}, "dd0": {}}
    for number in (1, 2):
        objects |= {
            f"a{number}0.dir": files(train=f"aa{number}"),
            f"b{number}0.dir": files(words=f"bb{number}", same="cc0"),
        }
    contents = {f".dvc/cache/files/md5/{md5[:2]}/{md5[2:]}": content for md5, content in objects.items()}
    contents |= {f".dvc/cache/runs/0/{name}/0": stage for name, stage in stages(1).items()}
    for name, content in (contents | {"dvc.lock": {"stages": stages(2)}}).items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(json.dumps(content))
    held = Cache().affected(Texts([SECRET]))
    assert [item.md5 for item in held] == ["aa1"]
    outputs, items = Cache().derived([], held)
    assert (outputs, [item.md5 for item in items]) == ([], ["bb1"])
