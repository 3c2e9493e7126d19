"""Masking of service names in their documents, so that a text does not contain its label."""

from __future__ import annotations

import re
from collections.abc import Iterable

from components.ingestion.builtin.aws import Service

MASK = "this service"

#: Service -> spellings that the metadata lacks: products, abbreviations, former names.
ALIASES: dict[str, tuple[str, ...]] = {
    "bedrock": ("Bedrock",),
    "bedrock-agent": ("Bedrock Agent", "Bedrock Agents", "Bedrock"),
    "bedrock-agentcore-control": ("AgentCore", "Agent Core", "Bedrock"),
    "cleanrooms": ("Clean Rooms",),
    "cognito-idp": ("Cognito",),
    "dms": ("Database Migration Service",),
    "ec2": ("Elastic Compute Cloud",),
    "ecs": ("Elastic Container Service", "EC2 Container Service"),
    "iam": ("Identity and Access Management",),
    "iotsitewise": ("SiteWise", "IoT SiteWise"),
    "lexv2-models": ("Lex", "Lex V2"),
    "logs": ("CloudWatch Logs",),
    "medialive": ("Elemental MediaLive", "Elemental"),
    "mediaconvert": ("Elemental MediaConvert", "Elemental"),
    "quicksight": ("Quick Suite", "Quick"),
    "rds": ("Relational Database Service",),
    "s3": ("Simple Storage Service",),
    "sagemaker": ("SageMaker AI",),
    "securityhub": ("Security Hub CSPM",),
    "ssm": ("Systems Manager", "Simple Systems Manager"),
}
_METADATA = ("serviceFullName", "serviceAbbreviation", "serviceId", "endpointPrefix", "signingName", "targetPrefix")
# The vendor's name before a mask; boundaries between a mask and an adjacent word.
_VENDOR = re.compile(rf"(?:Amazon Web Services|Amazon|AWS)(?:::|[\s_-]*)(?={MASK})", re.IGNORECASE)
_JOINED = re.compile(rf"(?<=[A-Za-z0-9])(?={MASK})|(?<={MASK})(?=[A-Za-z0-9])")
# Words of a camel-case name: DBInstance2 -> DB, Instance2.
WORDS = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+")
# Names of at least this length are also masked within a word (`sagemakergeospatial`).
_DISTINCTIVE = 8


def spellings(service: Service) -> set[str]:
    """Names of a service: its key, its names in the metadata without the vendor, and its aliases."""
    raw = {service.key, *ALIASES.get(service.key, ())}
    for field in _METADATA:
        name = re.sub(r"_?[Vv]?\d{8}$", "", service.metadata.get(field, ""))
        raw |= {part for part in re.split(r"[().]", name) if part.strip() not in ("", "api")}
    names = {re.sub(r"^\s*(?:Amazon|AWS)\s*", "", name).strip() for name in raw}
    return {name for name in names | {name.removesuffix(" Service") for name in names} if len(name) > 1}


#: A string that the lower-cased text contains wherever a name occurs, and the pattern of the name.
Masker = tuple[str, re.Pattern[str]]


def maskers(services: Iterable[Service]) -> list[Masker]:
    """Patterns of all spellings of the services, longest first.

    The words of a name may be joined, spaced or hyphenated, in any case. Within identifiers (`AwsEc2Instance`,
    `s3Bucket`) a name must be delimited by capitals or punctuation.
    """
    names = sorted({name for service in services for name in spellings(service)}, key=lambda name: (-len(name), name))
    return [_masker(name) for name in names]


def _masker(name: str) -> Masker:
    words = [word for part in re.split(r"[\s_-]+", name) for word in WORDS.findall(part) or [part]]
    letters = "".join(words)
    spaced = r"[\s_-]?".join(map(re.escape, words))
    if len(letters) >= _DISTINCTIVE:
        return words[0].lower(), re.compile(spaced, re.IGNORECASE)
    capitals = "|".join(sorted({letters, letters.upper(), letters.capitalize()} - {letters.lower()}))
    forms = (
        rf"(?<![A-Za-z0-9])(?i:{spaced})(?![A-Za-z0-9])",
        rf"(?<![A-Z])(?:{capitals})(?![a-z])",
        rf"(?<![A-Za-z0-9]){letters.lower()}(?=[A-Z_:])",
    )
    return words[0].lower(), re.compile("|".join(forms))


def mask(text: str, names: Iterable[Masker]) -> str:
    """The text with every name, and a vendor's name before it, replaced by `this service` as separate words."""
    lower = text.lower()
    for stem, pattern in names:
        if stem in lower:
            text = pattern.sub(MASK, text)
    return _JOINED.sub(" ", _VENDOR.sub("", text)) if MASK in text else text
