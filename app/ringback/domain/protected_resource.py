"""The service as OAuth knows it: protected resources, where tokens for them come from, and how a refusal says so.

Every door is a resource of its own, named by its URL (RFC 8707, RFC 9728; MCP 2026-07-28, Authorization): the public URL is
REST, `/mcp` and `/mcp/{upstream}` below it are the MCP endpoints. Here a resource is its path below the public URL, and what
is good for one is good for everything below it.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from ringback.domain.principal import Scope

WELL_KNOWN_PATH: Final = "/.well-known/oauth-protected-resource"
REST_RESOURCE: Final = ""
MCP_RESOURCE: Final = "/mcp"
SCOPE_PREFIX: Final = "ringback:"
"""Of our scopes in tokens: an issuer gives out those of many services."""

_MCP_PATH_PATTERN = re.compile(r"/mcp(?:/[a-z0-9-]{1,24})?(?![^/])")


def resource_for_path(path: str) -> str:
    """The resource that a request path belongs to."""
    found = _MCP_PATH_PATTERN.match(path)
    return found[0] if found else REST_RESOURCE


def parse_bearer_token(authorization: str | None) -> str | None:
    """The token in an `Authorization` header (RFC 6750 §2.1), if it has one."""
    scheme, _, credentials = (authorization or "").partition(" ")
    return credentials.strip() or None if scheme.lower() == "bearer" else None


def enclosing_resources(resource: str) -> list[str]:
    """The resource, and those that it is below: `/mcp/git` is below `/mcp`, which is below REST."""
    segments = resource.split("/")
    return ["/".join(segments[:count]) for count in range(len(segments), 0, -1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedResource:
    public_url: str
    issuer: str
    scopes: Sequence[Scope]
    """What a client asks the issuer for, to begin with; none where the issuer knows nothing of our scopes."""

    def resource_url(self, resource: str) -> str:
        return self.public_url + resource

    def metadata_url(self, resource: str) -> str:
        """Where the resource's metadata is: between the host and the path (RFC 9728 §3.1)."""
        base = urlsplit(self.public_url)
        return f"{base.scheme}://{base.netloc}{WELL_KNOWN_PATH}{base.path}{resource}"

    def metadata_document(self, suffix: str) -> dict[str, Any] | None:
        """The metadata at this suffix of the well-known path; None when no resource is called so.

        The document does not reveal whether an upstream exists: it is the same for every valid name.
        """
        resource = suffix.removeprefix(urlsplit(self.public_url).path)
        if resource_for_path(resource) != resource:
            return None
        return {
            "resource": self.resource_url(resource),
            "authorization_servers": [self.issuer],
            **({"scopes_supported": _format_scopes(self.scopes).split()} if self.scopes else {}),
            "bearer_methods_supported": ["header"],
            "resource_name": "Ringback",
        }

    def challenge_header(
        self, resource: str, *, error: str | None = None, scopes: Collection[Scope] | None = None
    ) -> str:
        """`WWW-Authenticate` of a refusal (RFC 6750 §3, RFC 9728 §5.1); a request without any token gets no error code."""
        wanted = _format_scopes(self.scopes if scopes is None else scopes)
        parameters = {"error": error, "scope": wanted, "resource_metadata": self.metadata_url(resource)}
        return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in parameters.items() if value)


def _format_scopes(scopes: Collection[Scope]) -> str:
    return " ".join(f"{SCOPE_PREFIX}{scope}" for scope in scopes)
