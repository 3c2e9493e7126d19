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
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml
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
#: Seconds after the last sign of life of a run from which on its process counts as dead.
SILENT_S = 120
#: Flows whose runs are watched.
FLOWS = ["retrain", "sync", "promote"]
AUTOMATIONS = Path(__file__).with_name("automations.yaml")


def install(address: str, *, suffix: str = "") -> list[str]:
    """Create or update the automations on a Prefect server; remove those that tell, if there is nobody to tell.

    Args:
        suffix: of their names (`Server.suffix`).

    Returns:
        Who is told, in words.

    Raises:
        ConfigError: the address of the mail server is invalid.
    """
    from prefect.client.orchestration import get_client
    from prefect.events.schemas.automations import AutomationCore

    hook, mail = _saved("webhook", os.environ.get(WEBHOOK), suffix), _saved("email", email_address(), suffix)
    watched: dict[str, Any] = {"match": {"prefect.resource.id": "prefect.flow-run.*"}, "threshold": 1}
    watched |= {"match_related": {"prefect.resource.role": "flow", "prefect.resource.name": FLOWS}}
    watched |= {"type": "event", "for_each": ["prefect.resource.id"], "within": SILENT_S}
    with get_client(sync_client=True) as client:
        for entry in yaml.safe_load(AUTOMATIONS.read_text(encoding="utf-8")):
            name = f"{entry['name']}{suffix}"
            actions = [each | {"message": KILLED} for each in entry.get("actions", ())]
            if "what" in entry:
                text = (
                    f"{entry['what']}\n\nReason: {entry['reason']}\n\nRun: {page(address)}/runs/flow-run/"
                    f"{{{{ flow_run.id }}}}\n\nWhat to do: {entry['todo']}\n"
                )
                payload = f'{{% set text %}}{text}{{% endset %}}{{"text": {{{{ text|string|tojson }}}}}}'
                told = {"type": "send-notification", "subject": entry["what"], "body": text, "block_document_id": mail}
                called = {"type": "call-webhook", "payload": payload, "block_document_id": hook}
                actions = [each for each in (called, told) if each["block_document_id"]]
            existing = client.read_automations_by_name(name)
            for double in existing[1:] if actions else existing:
                client.delete_automation(double.id)
            if actions:
                about = {"name": name, "description": "Made by `headstart schedule --notify`.", "actions": actions}
                made = AutomationCore.model_validate(about | {"trigger": watched | entry["trigger"]})
                client.update_automation(existing[0].id, made) if existing else client.create_automation(made)
    return [who for who, block in (("a webhook", hook), ("e-mail", mail)) if block]


def _saved(receiver: str, url: str | None, suffix: str) -> str:
    """The id of the block with the address of a receiver; empty without one."""
    from prefect.blocks.notifications import SlackWebhook
    from prefect.blocks.webhook import Webhook

    if not url:
        return ""
    # Prefect has no block for e-mail by SMTP; that of Slack passes every other address to Apprise.
    block: Any = SlackWebhook(url=SecretStr(url))
    if receiver == "webhook":
        block = Webhook(method="POST", url=SecretStr(url))
    return str(block.save(f"headstart-{receiver}{suffix}", overwrite=True))


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
