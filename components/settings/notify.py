"""`notify`: who is told about a run that fails or does not start. No key changes a result."""

from __future__ import annotations

import os
from urllib.parse import urlencode, urlsplit

from components.errors import ConfigError
from components.settings.section import Section

WEBHOOK = "HEADSTART_NOTIFY_WEBHOOK"
EMAIL = "HEADSTART_NOTIFY_EMAIL"
SMTP = "HEADSTART_SMTP"
#: Scheme of HEADSTART_SMTP -> scheme and mode of Apprise, and default port.
SCHEMES = {"smtp": ("mailto", "", 25), "smtp+starttls": ("mailtos", "starttls", 587), "smtps": ("mailtos", "ssl", 465)}


class NotifySettings(Section):
    """Receivers of notifications. Addresses with secrets belong in the environment."""

    #: Address to which a JSON object is posted; `text` in it is what Slack and Mattermost show. The variable
    #: HEADSTART_NOTIFY_WEBHOOK takes precedence.
    webhook: str | None = None
    #: Receivers of e-mail. The variable HEADSTART_NOTIFY_EMAIL (separated by commas) takes precedence. The mail server
    #: is HEADSTART_SMTP, such as smtp+starttls://user:password@smtp.example.org:587; localhost by default.
    email: list[str] = []
    #: Sender of e-mail.
    sender: str = "headstart@localhost"

    @property
    def webhook_address(self) -> str | None:
        """The address in use; None: no webhook."""
        return os.environ.get(WEBHOOK) or self.webhook

    @property
    def email_address(self) -> str | None:
        """The address in use in the notation of Apprise (https://github.com/caronc/apprise/wiki/Notify_email), which
        contains the mail server; None: no e-mail.

        Raises:
            ConfigError: HEADSTART_SMTP is not the address of a mail server.
        """
        receivers = [one.strip() for one in os.environ.get(EMAIL, "").split(",") if one.strip()] or self.email
        if not receivers:
            return None
        parts = urlsplit(os.environ.get(SMTP) or "smtp://localhost")
        if parts.scheme not in SCHEMES or not parts.hostname:
            raise ConfigError(
                f"{SMTP}: must be smtp://, smtp+starttls:// or smtps://, then USER:PASSWORD@ if needed, HOST and :PORT"
            )
        scheme, mode, port = SCHEMES[parts.scheme]
        user = f"{parts.username}:{parts.password or ''}@" if parts.username else ""
        options = {"from": self.sender, "to": ",".join(receivers), "smtp": parts.hostname} | (
            {"mode": mode} if mode else {}
        )
        return f"{scheme}://{user}{parts.hostname}:{parts.port or port}/?{urlencode(options)}"
