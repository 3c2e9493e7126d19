"""A version of a registered model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from components.core.errors import RegistryError

#: Prefix of the tags of Headstart.
PREFIX = "headstart."
#: Name of the log of `components.registry.ledger`.
LEDGER = "headstart.ledger"
#: Name of the document of `components.registry.lineage`.
PROVENANCE = "provenance"


@dataclass(frozen=True)
class Version:
    """One version of a registered model. Tags are without the prefix."""

    name: str
    number: str
    source: str
    run_id: str
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Name and number, such as `headstart-aws-type/3`."""
        return f"{self.name}/{self.number}"

    @property
    def digest(self) -> str:
        """Content digest of the bundle; empty if the version was not made by Headstart."""
        return self.tags.get("digest", "")

    @property
    def system(self) -> str:
        """Name of the system that it is a model of, in results; empty for encoders and versions of others."""
        return self.tags.get("system", "")

    @property
    def identity(self) -> dict[str, str]:
        return {"name": self.name, "version": self.number, "digest": self.digest}


def numbered(registry: Any, model: str, number: str) -> Version:
    """A version of a model in a `Registry` or `Reading`.

    Raises:
        RegistryError: there is no such version; the message has the numbers that exist.
    """
    version: Version | None = registry.find_number(model, number)
    if version is None:
        numbers = ", ".join(each.number for each in registry.versions(model)) or "none"
        raise RegistryError(f"{model}: has no version {number}; existing versions: {numbers}")
    return version
