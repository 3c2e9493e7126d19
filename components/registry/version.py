"""A version of a registered model."""

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Prefix of the tags of Headstart.
PREFIX = "headstart."


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
    def identity(self) -> dict[str, str]:
        return {"name": self.name, "version": self.number, "digest": self.digest}
