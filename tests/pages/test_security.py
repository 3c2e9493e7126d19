"""Who may read and write: host, token, forms, headers, paths."""

import re

import pytest

from components.pages.app import HEADERS
from tests.pages.conftest import TASK, client_of


def test_another_host_is_refused(new_client):
    """By the rules of tests/serving/test_server.py."""
    answer = new_client.get("/", headers={"Host": "evil.example:5002"})
    assert answer.status_code == 421 and "is not this server" in answer.text


def test_the_token_is_needed_once_and_leaves_the_address(tmp_path, new_client):
    client = client_of(tmp_path, token="secret")
    assert client.get("/").status_code == 401
    assert client.get("/?token=wrong").status_code == 401
    assert client.get("/static/style.css").status_code == 401
    assert client.get("/", headers={"Authorization": "Bearer secret"}).status_code == 200
    answer = client.get("/runs?token=secret")
    assert answer.status_code == 303 and answer.headers["location"] == "/runs"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie
    assert client.get("/").status_code == 200


def test_forms_of_other_sites_are_refused(new_client):
    secret = re.search(r'name="csrf" value="([^"]+)"', new_client.get("/try").text)
    assert secret
    good = {"csrf": secret[1], "text": "", "task": TASK}
    assert new_client.post("/try", data=good).status_code == 200
    for origin in ("http://evil.example", "null", "http://localhost:1"):
        assert new_client.post("/try", data=good, headers={"Origin": origin}).status_code == 403
    assert new_client.post("/try", data=good, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    for bad in ({"text": "a"}, {"csrf": "guess", "text": "a"}):
        answer = new_client.post("/try", data=bad)
        assert answer.status_code == 403 and "load the page again" in answer.text
    assert new_client.post("/try", content=b"x" * 200_001).status_code == 413
    assert new_client.post("/try", content=b"\xff=\xff").status_code == 400


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static/security.py", "/../params.yaml"],
)
def test_no_other_file_is_served(new_client, path):
    answer = new_client.get(path)
    assert answer.status_code == 404 and "import" not in answer.text


def test_every_answer_has_the_headers(new_client):
    for path, host in (("/", "localhost"), ("/nothing", "localhost"), ("/static/pages.js", "localhost"), ("/", "evil")):
        answer = new_client.get(path, headers={"Host": host})
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe-eval" not in policy and "http" not in policy
    assert "script-src 'self';" in policy
