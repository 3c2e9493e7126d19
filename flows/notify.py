"""Notifications about runs that fail, crash or do not start in time: `headstart schedule --notify`.

Receivers are variables of the environment, because addresses hold secrets. HEADSTART_NOTIFY_WEBHOOK: address to which
JSON with `text` is posted, as Slack and Mattermost take it. HEADSTART_NOTIFY_EMAIL: receivers of e-mail, separated by
commas. HEADSTART_SMTP: the mail server, such as smtp+starttls://user:password@smtp.example.org:587.

They are automations of the Prefect server, which calls a webhook and sends e-mail (by Apprise, a dependency of
Prefect). A third one, which needs no receiver, ends the runs whose process has died without a word: such a run would
hold the only place of its deployment for ever. `headstart schedule` and the deployments of infra/ create them too; what
exists already is updated.
"""

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import UUID

from pydantic import SecretStr

from components.core.errors import ConfigError
from components.core.masking import MASK
from flows.flow_run import KILLED
from flows.server import page, server
from flows.terminal import terminal

WEBHOOK = "HEADSTART_NOTIFY_WEBHOOK"
EMAIL = "HEADSTART_NOTIFY_EMAIL"
SMTP = "HEADSTART_SMTP"
#: Scheme of HEADSTART_SMTP -> scheme and mode of Apprise, and default port.
SCHEMES = {"smtp": ("mailto", "", 25), "smtp+starttls": ("mailtos", "starttls", 587), "smtps": ("mailtos", "ssl", 465)}
SENDER = "headstart@localhost"
#: Names of the blocks with the addresses.
WEBHOOK_BLOCK, EMAIL_BLOCK = "headstart-webhook", "headstart-email"
#: The automation that ends runs without a sign of life, and the seconds after the last one.
ZOMBIES, SILENT_S = "headstart: a run has died", 120

#: Flows whose runs are watched.
FLOWS = ("retrain", "sync", "promote")


@dataclass(frozen=True)
class Occasion:
    """What a message is about."""

    name: str
    events: frozenset[str]
    what: str
    reason: str
    todo: str


OCCASIONS = (
    Occasion(
        "headstart: a run has failed",
        frozenset(f"prefect.flow-run.{state}" for state in ("Failed", "Crashed", "TimedOut")),
        what="{{ flow.name }} has failed: {{ flow_run.name }} ({{ flow_run.state.name }})",
        reason="{{ flow_run.state.message }}",
        todo="Correct what the reason names, then run `headstart {{ flow.name }}` again: it continues at the stage "
        "that failed. The champion is unchanged. `headstart ui --servers` shows the logs, and the run in MLflow.",
    ),
    Occasion(
        "headstart: a run is late",
        frozenset(("prefect.flow-run.Late",)),
        what="{{ flow.name }} has not started in time: {{ flow_run.name }}",
        reason="It was due at {{ flow_run.expected_start_time }}, and no process has taken it.",
        todo="Check that `headstart schedule` (or the Prefect worker) runs and that the run before it has ended.",
    ),
)


def install(address: str, *, suffix: str = "") -> list[str]:
    """Create or update the automations on a Prefect server; remove them if there is nobody to tell.

    Args:
        suffix: of their names (`Server.suffix`).

    Returns:
        Who is told, in words.

    Raises:
        ConfigError: the address of the mail server is invalid.
    """
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        actions, receivers = _actions(page(address), suffix)
        wanted = {each.name: _told(each, [action(each) for action in actions]) for each in OCCASIONS if actions}
        wanted[ZOMBIES] = _zombies()
        for automation in wanted.values():
            automation.name += suffix
        for name in (ZOMBIES, *(each.name for each in OCCASIONS)):
            existing = client.read_automations_by_name(f"{name}{suffix}")
            for double in existing[1:] if name in wanted else existing:
                client.delete_automation(double.id)
            if name in wanted and existing:
                client.update_automation(existing[0].id, wanted[name])
            elif name in wanted:
                client.create_automation(wanted[name])
    return receivers


def _told(occasion: Occasion, actions: list[Any]) -> Any:
    return _automation(occasion.name, actions, expect=set(occasion.events), within=timedelta(0))


def _zombies() -> Any:
    """Runs that have given a sign of life and then neither another one nor an end are crashed."""
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState

    heartbeat = "prefect.flow-run.heartbeat"
    ends = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed")}
    died = ChangeFlowRunState(state=StateType.CRASHED, name=None, message=KILLED, force=False)
    return _automation(
        ZOMBIES,
        [died],
        after={heartbeat},
        expect={heartbeat, *ends},
        within=timedelta(seconds=SILENT_S),
        reactive=False,
    )


def _automation(name: str, actions: list[Any], *, reactive: bool = True, **trigger: Any) -> Any:
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

    return AutomationCore(
        name=name,
        description="Made by `headstart schedule --notify`.",
        trigger=EventTrigger(
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related={"prefect.resource.role": "flow", "prefect.resource.name": list(FLOWS)},
            for_each={"prefect.resource.id"},
            posture=Posture.Reactive if reactive else Posture.Proactive,
            threshold=1,
            **trigger,
        ),
        actions=actions,
    )


def _actions(base: str, suffix: str) -> tuple[list[Any], list[str]]:
    """A function per receiver that makes its action for an occasion, and the receivers in words."""
    from prefect.blocks.notifications import SlackWebhook
    from prefect.blocks.webhook import Webhook
    from prefect.events.actions import CallWebhook, SendNotification

    link = f"{base}/runs/flow-run/{{{{ flow_run.id }}}}"
    actions: list[Any] = []
    receivers: list[str] = []
    if webhook := os.environ.get(WEBHOOK):
        block = UUID(
            str(Webhook(method="POST", url=SecretStr(webhook)).save(f"{WEBHOOK_BLOCK}{suffix}", overwrite=True))
        )
        actions.append(lambda occasion: CallWebhook(block_document_id=block, payload=_payload(occasion, link)))
        receivers.append("a webhook")
    if email := email_address():
        # Prefect has no block for e-mail by SMTP; this one passes every address that is not Slack's to Apprise.
        mail = UUID(str(SlackWebhook(url=SecretStr(email)).save(f"{EMAIL_BLOCK}{suffix}", overwrite=True)))
        actions.append(
            lambda occasion: SendNotification(block_document_id=mail, subject=occasion.what, body=_text(occasion, link))
        )
        receivers.append("e-mail")
    return actions, receivers


def email_address() -> str | None:
    """The receivers in the notation of Apprise (https://github.com/caronc/apprise/wiki/Notify_email), which contains
    the mail server, localhost by default; None: no e-mail.

    Raises:
        ConfigError: HEADSTART_SMTP is not the address of a mail server.
    """
    receivers = [part.strip() for part in os.environ.get(EMAIL, "").split(",") if part.strip()]
    if not receivers:
        return None
    parts = urlsplit(os.environ.get(SMTP) or "smtp://localhost")
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise ConfigError(
            f"{SMTP}: must be smtp://, smtp+starttls:// or smtps://, then USER:PASSWORD@ if needed, HOST and :PORT"
        )
    scheme, mode, port = SCHEMES[parts.scheme]
    user = f"{parts.username}:{parts.password or ''}@" if parts.username else ""
    options = {"from": SENDER, "to": ",".join(receivers), "smtp": parts.hostname} | ({"mode": mode} if mode else {})
    return f"{scheme}://{user}{parts.hostname}:{parts.port or port}/?{urlencode(options)}"


def _text(occasion: Occasion, link: str) -> str:
    return f"{occasion.what}\n\nReason: {occasion.reason}\n\nRun: {link}\n\nWhat to do: {occasion.todo}\n"


def _payload(occasion: Occasion, link: str) -> str:
    return f'{{% set text %}}{_text(occasion, link)}{{% endset %}}{{"text": {{{{ text|string|tojson }}}}}}'


def send_trial() -> None:
    """Send a message to every receiver, without Prefect's server.

    Raises:
        ConfigError: a receiver does not accept it.
    """
    import httpx
    from prefect.blocks.notifications import SlackWebhook

    subject, body = "headstart: a trial message", "Notifications of failed and late runs arrive here."
    if webhook := os.environ.get(WEBHOOK):
        try:
            httpx.post(webhook, json={"text": f"{subject}\n\n{body}"}, timeout=30).raise_for_status()
        except httpx.HTTPError as error:
            # The address of a webhook is its password.
            reason = str(error).replace(webhook, MASK)
            raise ConfigError(f"{WEBHOOK}: the message was not accepted ({reason})") from None
    if email := email_address():
        block = SlackWebhook(url=SecretStr(email))
        try:
            with block.raise_on_failure():
                block.notify(body=body, subject=subject)
        except Exception as error:
            reason = " ".join(str(getattr(error, "log", error)).split())
            raise ConfigError(f"{EMAIL}: the message was not sent ({reason})") from None


def create(start: Path, *, test: bool, port: int) -> None:
    """Create the notifications of the project with `start` on the Prefect server; with `test`, send a trial message."""
    if test:
        send_trial()
    with server(port=port) as running:
        receivers = install(running.address, suffix=running.suffix(start))
    if not receivers:
        terminal.say(f"notifications have no receiver: set {WEBHOOK} or {EMAIL}")
    else:
        sent = "; trial messages sent" if test else ""
        terminal.say(f"failed and late runs are told by {' and '.join(receivers)}{sent}")
