"""LogME against direct computation, and the study on tiny encoders."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from components.core.errors import ArtifactError, ConfigError
from components.studies.frozen import logme
from tests.studies.conftest import findings


def test_the_study(outputs, add_task, add_encoder):
    add_task(selection="budget", dev=None)
    for seed, name in enumerate(("ulmfit", "bert", "word2vec")):
        add_encoder(name, seed=seed)
    actual = findings(outputs, "which-source", encoders="ulmfit-adapted, bert, word2vec-adapted")
    rows = actual.numbers["aws-type"]
    assert {row["encoder"] for row in rows} == {"ulmfit-adapted", "bert-adapted", "word2vec-adapted"}
    assert rows == sorted(rows, key=lambda row: -row["LogME"]) and "5 labels a class" in actual.chapter.text[0]


def test_source_tasks_are_ranked(outputs, add_task, add_encoder):
    params = outputs.params
    outputs.params = params.model_copy(
        update={
            "intermediate_tasks": ["aws-service", "aws-type", "aws-code"],
            "run": params.run.model_copy(update={"families": ["ulmfit"], "starts": ["scratch", "adapted"]}),
        }
    )
    add_task()
    add_encoder("ulmfit")
    for seed, source in enumerate(("aws-service", "aws-code", "aws-type")):
        for start in ("scratch", "adapted"):
            add_encoder("ulmfit", f"{start}-after-{source}", seed=seed)
    result = findings(outputs, "which-source")
    # The task itself is no source.
    ranked = [row["encoder"] for row in result.numbers["aws-type"]]
    sources = ("aws-service", "aws-code")
    assert {*ranked} == {"ulmfit-adapted", *(f"ulmfit-{s}-after-{t}" for s in ("scratch", "adapted") for t in sources)}
    named = findings(outputs, "which-source", encoders="ulmfit-adapted-after-aws-code, ulmfit-adapted")
    assert {row["encoder"] for row in named.numbers["aws-type"]} == {"ulmfit-adapted-after-aws-code", "ulmfit-adapted"}


def test_a_sample_with_one_label_is_refused(outputs, add_encoder, write_task):
    rows = [{"words": ["the", "old", "apple"], "tags": ["O", "O", "O"]} for _ in range(40)]
    write_task("aws-type", [{"words": ["iron"], "tags": ["B-METAL"]}, *rows], kind="tagging")
    for name in ("ulmfit", "bert"):
        add_encoder(name)
    with pytest.raises(ConfigError, match="aws-type: the sample of train has only one label, .*raise --budget"):
        findings(outputs, "which-source", encoders="ulmfit-adapted, bert-adapted")


def test_messages_about_missing_inputs(outputs, add_task):
    with pytest.raises(ArtifactError, match="examples/aws-type: missing; run `headstart stage examples --item"):
        findings(outputs, "which-source")
    add_task()
    with pytest.raises(ConfigError, match="--encoders: at least two candidates"):
        findings(outputs, "which-source", encoders="ulmfit-adapted")
    with pytest.raises(ConfigError, match="--encoders: at least two candidates"):
        findings(outputs, "which-source")
    with pytest.raises(ArtifactError, match="run `headstart stage pretrain --item ulmfit`"):
        findings(outputs, "which-source", encoders="ulmfit, bert")


def best_evidence(features: np.ndarray, targets: np.ndarray) -> float:
    """max over alpha, beta of log N(y; 0, I / beta + F F^T / alpha) / N, with the weights integrated out."""

    def negative(logarithms: np.ndarray) -> float:
        alpha, beta = np.exp(logarithms)
        covariance = np.eye(len(targets)) / beta + features @ features.T / alpha
        return -float(multivariate_normal(cov=covariance).logpdf(targets)) / len(targets)

    starts = [np.array([a, b]) for a in (-2.0, 2.0) for b in (-2.0, 2.0)]
    return -min(
        minimize(negative, start, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-10}).fun for start in starts
    )


@pytest.mark.parametrize(("rows", "features"), [(30, 5), (12, 20)])
def test_logme_is_the_maximum_of_the_evidence(rows, features):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows, features))
    y = np.eye(3)[(x[:, 0] + 0.3 * rng.normal(size=rows) > 0).astype(int) + (x[:, 1] > 1)]
    expected = np.mean([best_evidence(x, column) for column in y.T])
    assert logme(x, y) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("scale", [1e-3, 500.0, 1e5])
def test_logme_does_not_depend_on_the_scale_of_the_features(scale):
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(34, 15)), np.eye(2)[rng.integers(0, 2, size=34)]
    assert logme(scale * x, y) == pytest.approx(logme(x, y), abs=1e-6)
    assert logme(np.zeros((34, 15)), y) < logme(x, y) + 1e-6
