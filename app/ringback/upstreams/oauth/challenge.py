"""The refusal of a request: its status and its challenge, `WWW-Authenticate: Bearer` (RFC 6750 §3, RFC 9728 §5)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

CHALLENGE_LENGTH_MAX: Final = 8192
"""Characters. A challenge has some hundred; the limit of most servers for one header."""
_BEARER: Final = re.compile(r"(?:^|[\s,])bearer(?:\s+|$)", re.IGNORECASE)
_PARAMETER: Final = re.compile(r'([A-Za-z0-9_-]{1,64})\s{0,8}=\s{0,8}(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_ESCAPE: Final = re.compile(r"\\(.)")
INSUFFICIENT_SCOPE: Final = "insufficient_scope"
INVALID_TOKEN: Final = "invalid_token"  # noqa: S105 - an error code


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Nothing in it is trusted."""

    status_code: int
    is_bearer: bool = False
    """Whether the upstream asks for a Bearer token in words."""
    error: str | None = None
    scope: str | None = None
    resource_metadata: str | None = field(default=None, repr=False)
    is_handshake: bool = False
    """Whether the refused request opens a session."""

    @property
    def requires_scope(self) -> bool:
        """Whether the token is valid and lacks a scope (step-up)."""
        return self.status_code == HTTPStatus.FORBIDDEN and self.error == INSUFFICIENT_SCOPE

    @property
    def rejects_token(self) -> bool:
        """Whether the token is refused for every request. Any other 401 may be that of one tool, for one caller."""
        return self.status_code == HTTPStatus.UNAUTHORIZED and (self.error == INVALID_TOKEN or self.is_handshake)


def parse_refusal(status_code: int, challenges: Iterable[str]) -> Refusal:
    """`challenges` are the values of all `WWW-Authenticate` headers. The first Bearer challenge counts."""
    for challenge in challenges:
        found = None if len(challenge) > CHALLENGE_LENGTH_MAX else _BEARER.search(challenge)
        if found is not None:
            parameters = _parse_parameters(challenge[found.end() :])
            return Refusal(
                status_code=status_code,
                is_bearer=True,
                error=parameters.get("error"),
                scope=parameters.get("scope"),
                resource_metadata=parameters.get("resource_metadata"),
            )
    return Refusal(status_code=status_code)


def _parse_parameters(text: str) -> dict[str, str]:
    """The first value of each parameter. Parameters of a later challenge in the same header only add others."""
    parameters: dict[str, str] = {}
    for name, quoted, bare in _PARAMETER.findall(text):
        parameters.setdefault(name.lower(), bare or _ESCAPE.sub(r"\1", quoted))
    return parameters
