"""Passwords and tokens are in no text that leaves the process."""

import pytest

from components.core.masking import masked, masked_json, masked_values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql+psycopg2://me:pw@db:5432/mlflow", "postgresql+psycopg2://me:***@db:5432/mlflow"),
        ("a/b in it: postgresql://me:p/w@db/x", "a/b in it: postgresql://me:***@db/x"),
        ("at http://me:p@ss@host:5000/x, then", "at http://me:***@host:5000/x, then"),
        ("http://me:12345@host:1/", "http://me:***@host:1/"),
        ("redis://:pw@host", "redis://:***@host"),
        ("https://ghp_abc@github.com/a.git", "https://***@github.com/a.git"),
        ("s3://key:pw@bucket/p?endpoint_override=x", "s3://key:***@bucket/p?endpoint_override=x"),
        ("https://h/x?a=1&X-Amz-Signature=abc&b=2", "https://h/x?a=1&X-Amz-Signature=***&b=2"),
        ("https://h/x?token=abc#y", "https://h/x?token=***#y"),
        ("https://h/x?key=abc", "https://h/x?key=***"),
        ("https://hooks.slack.com/services/T0/B0/x.", "https://hooks.slack.com/***"),
        ("https://discord.com/api/webhooks/1/x", "https://discord.com/***"),
        ("https://chat.example.org/hooks/x", "https://chat.example.org/***"),
        # Nothing is secret.
        ("http://host:5000/a@b", "http://host:5000/a@b"),
        ("ssh://git@host/x", "ssh://git@host/x"),
        ("sqlite:///mlflow.db", "sqlite:///mlflow.db"),
        ("http://127.0.0.1:4200/runs?tokens=5&page=1", "http://127.0.0.1:4200/runs?tokens=5&page=1"),
        ("user: me@example.org", "user: me@example.org"),
    ],
)
def test_addresses(text: str, expected: str) -> None:
    assert masked(text) == expected == masked(expected)


def test_values_of_secret_keys():
    settings = {
        "notify": {"webhook": "https://h/x", "email": ["a@b"], "sender": "s"},
        "api_token": 12345678,
        "password": None,
        "training": {"tokens": 1000, "tokenizer": "wordpiece", "key": "k"},
        "list": [{"secret": ["x"]}, "http://u:p@h"],
        "tasks": {"signature": {"path": "data"}},
    }
    assert masked_json({"data/token": "0a1b", "url": "http://u:p@h"}) == {"data/token": "0a1b", "url": "http://u:***@h"}
    assert masked_values(settings) == {
        "notify": {"webhook": "***", "email": ["a@b"], "sender": "s"},
        "api_token": "***",
        "password": None,
        "training": {"tokens": 1000, "tokenizer": "wordpiece", "key": "k"},
        "list": [{"secret": ["***"]}, "http://u:***@h"],
        "tasks": {"signature": {"path": "data"}},
    }


def test_secrets_of_the_environment(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "abcdefgh1234")
    monkeypatch.setenv("SHORT_TOKEN", "text")
    monkeypatch.setenv("PWD", "/a/working/directory")
    assert masked("rejected abcdefgh1234 for a text in /a/working/directory") == (
        "rejected *** for a text in /a/working/directory"
    )


def test_a_secret_of_digits_leaves_numbers_and_json_as_they_are(monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", "12345678")
    value = {"rows": 12345678, "path": "data/12345678.csv", "list": [12345678, True, None]}
    assert masked_json(value) == {"rows": 12345678, "path": "data/***.csv", "list": [12345678, True, None]}


def test_only_the_free_text_of_a_record_is_masked(monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", "rollback")
    record = {"action": "rollback", "facts": {"reasons": ["no rollback", {"note": "rollback"}], "names": ["rollback"]}}
    assert masked_json(record, {"reasons"}) == {
        "action": "rollback",
        "facts": {"reasons": ["no ***", {"note": "***"}], "names": ["rollback"]},
    }
