"""Notifications: automations on a Prefect server, tried against a local HTTP receiver and a local mail server."""

import asyncio
import http.server
import json
import queue
import socketserver
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email import message_from_string
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL

from components.core.errors import ConfigError
from flows import notify
from flows.notify import EMAIL, SMTP, WEBHOOK


class Receiver:
    """A web server and a mail server that keep what they receive."""

    def __init__(self) -> None:
        self.posts: queue.Queue[dict[str, Any]] = queue.Queue()
        self.mails: queue.Queue[str] = queue.Queue()
        posts, mails = self.posts, self.mails

        class Web(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                posts.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        class Mail(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                lines: list[str] | None = None
                self.say("220 local")
                while line := self.rfile.readline().decode().rstrip("\r\n"):
                    verb = line.partition(" ")[0].upper()
                    if verb == "DATA":
                        self.say("354 go on")
                        lines = []
                        while (part := self.rfile.readline().decode().rstrip("\r\n")) != ".":
                            lines.append(part)
                        mails.put("\n".join(lines))
                    self.say("221 bye" if verb == "QUIT" else "250 ok")

            def say(self, text: str) -> None:
                self.wfile.write(f"{text}\r\n".encode())

        self.web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web)
        self.mail = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mail)
        for single in (self.web, self.mail):
            threading.Thread(target=single.serve_forever, daemon=True).start()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    actual = Receiver()
    monkeypatch.setenv(WEBHOOK, f"http://127.0.0.1:{actual.web.server_address[1]}/hook")
    monkeypatch.setenv(EMAIL, "ops@example.org")
    monkeypatch.setenv(SMTP, f"smtp://127.0.0.1:{actual.mail.server_address[1]}")
    yield actual
    for single in (actual.web, actual.mail):
        single.shutdown()
        single.server_close()


def automations() -> list[str]:
    with get_client(sync_client=True) as client:
        return sorted(single.name for single in client.read_automations() if single.name.startswith("headstart: "))


@flow(name="retrain", flow_run_name="the run of 3 o'clock")
def fails() -> None:
    raise ValueError('pretrain@ulmfit: no space left on "device"\n  free some')


def test_failed_and_late_runs_are_told(receiver, prefect_server, monkeypatch):
    address = str(PREFECT_API_URL.value())
    monkeypatch.delenv("PREFECT_UI_URL", raising=False)
    for _ in range(2):  # nothing is doubled
        assert notify.install(address) == ["a webhook", "e-mail"]
    assert automations() == ["headstart: a run has died", "headstart: a run has failed", "headstart: a run is late"]

    # Those of another project on the same server.
    notify.install(address, suffix="-0a1b2c")
    others = [f"headstart: a run {what}-0a1b2c" for what in ("has died", "has failed", "is late")]
    assert automations()[1::2] == others
    with get_client(sync_client=True) as client:
        for name in others:
            client.delete_automation(client.read_automations_by_name(name)[0].id)

    with pytest.raises(ValueError, match="no space left"):
        fails()
    told = receiver.posts.get(timeout=120)["text"]
    what = "retrain has failed: the run of 3 o'clock (Failed)"
    assert told.startswith(f"{what}\n")
    assert 'pretrain@ulmfit: no space left on "device"\n  free some' in told
    assert f"{address.removesuffix('/api')}/runs/flow-run/" in told and "`headstart retrain` again" in told
    mail = message_from_string(receiver.mails.get(timeout=120))
    assert (mail["To"], mail["Subject"]) == ("ops@example.org", what)
    text = next(part for part in mail.walk() if part.get_content_type() == "text/plain").get_payload(decode=True)
    assert isinstance(text, bytes)
    assert "/runs/flow-run/" in text.decode()

    async def be_late() -> None:
        async with get_client() as client:
            from prefect.states import Scheduled

            due = datetime.now(UTC) - timedelta(hours=1)
            run = await client.create_flow_run(fails, name="the run of 4 o'clock", state=Scheduled(scheduled_time=due))
            from prefect.client.schemas.objects import State, StateType

            late = State(type=StateType.SCHEDULED, name="Late", state_details={"scheduled_time": due})
            await client.set_flow_run_state(run.id, late, force=True)

    asyncio.run(be_late())
    told = receiver.posts.get(timeout=120)["text"]
    assert told.startswith("retrain has not started in time: the run of 4 o'clock\n") and "headstart schedule" in told

    # Nobody is told any more.
    for name in (WEBHOOK, EMAIL):
        monkeypatch.delenv(name)
    assert notify.install(address) == []
    assert automations() == ["headstart: a run has died"]


def test_trial_messages(receiver, monkeypatch):
    notify.send_trial()
    assert "trial" in receiver.posts.get(timeout=10)["text"]
    assert "trial" in receiver.mails.get(timeout=10)
    monkeypatch.setenv(WEBHOOK, "http://127.0.0.1:9/")
    with pytest.raises(ConfigError, match="HEADSTART_NOTIFY_WEBHOOK: the message was not accepted"):
        notify.send_trial()
    monkeypatch.delenv(WEBHOOK)
    monkeypatch.setenv(SMTP, "smtp://127.0.0.1:9")
    with pytest.raises(ConfigError, match="HEADSTART_NOTIFY_EMAIL: the message was not sent"):
        notify.send_trial()


def test_the_address_of_the_mail_server(monkeypatch):
    for name in (EMAIL, SMTP):
        monkeypatch.delenv(name, raising=False)
    assert notify.email_address() is None
    monkeypatch.setenv(EMAIL, "a@b.c, d@e.f")
    sender = "from=headstart%40localhost"
    assert notify.email_address() == f"mailto://localhost:25/?{sender}&to=a%40b.c%2Cd%40e.f&smtp=localhost"
    monkeypatch.setenv(SMTP, "smtp+starttls://me:p%40ss@mail.example.org")
    assert str(notify.email_address()).startswith("mailtos://me:p%40ss@mail.example.org:587/?")
    monkeypatch.setenv(SMTP, "mail.example.org")
    with pytest.raises(ConfigError, match="must be smtp://"):
        notify.email_address()
