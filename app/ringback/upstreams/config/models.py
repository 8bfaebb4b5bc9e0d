"""What is known of an upstream before it is reached: one value, in which everything is decided and expanded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

MAX_CONCURRENT_STDIO: Final = 16
"""One process and one pipe: more calls at once only wait inside it."""
MAX_CONCURRENT_HTTP: Final = 256
"""Each waiting call is a connection; 256 of them stay below a usual limit of 1024 open files."""
CONCURRENT_CALLS_MAX: Final = 10_000
"""As many waiting calls as one process is built for."""
INLINE_WAIT_SECONDS_MAX: Final = 50.0
"""Hosts give a tool call up after 60 s, many of them; the answer needs a moment to get there."""
META_WILDCARD: Final = "*"
"""Stands at the end of a key's beginning, in `UpstreamConfig.pass_meta`."""


class UpstreamTransport(StrEnum):
    STDIO = "stdio"
    HTTP = "http"


class Isolation(StrEnum):
    """Who shares a session with the upstream (with stdio: a process): all calls, those of one principal, or nobody."""

    SHARED = "shared"
    PRINCIPAL = "principal"
    CALL = "call"


class AuthMethod(StrEnum):
    """How a client proves itself to a token endpoint (RFC 6749 §2.3.1): in a header, or in the form."""

    BASIC = "client_secret_basic"
    POST = "client_secret_post"


class ConfigError(ValueError):
    """The configuration of the upstreams does not hold together; the message says where and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """An OAuth client of our own (RFC 6749 §4.4): what an upstream's access tokens are got with.

    The token endpoint is named and never discovered: else whoever answers as the upstream decides who is given the secret.
    """

    token_url: str = field(repr=False)
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    resource: str | None = field(default=None, repr=False)
    """Whom the token is for (RFC 8707); 2025-06-18 and later want it said. None: it is left out."""
    auth_method: AuthMethod = AuthMethod.BASIC


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamConfig:
    """One upstream. `command`, `args`, `env` and `cwd` belong to stdio, `url`, `headers` and `oauth` to HTTP."""

    name: str
    transport: UpstreamTransport
    command: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Added to the few variables that the SDK deems safe to inherit; nothing else of our environment is passed on."""
    cwd: str | None = None
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    oauth: ClientCredentials | None = None
    max_concurrent: int
    trusts_annotations: bool = False
    """Whether readOnlyHint and idempotentHint of its tools may decide that a call is run a second time."""
    isolation: Isolation = Isolation.SHARED
    """Before 2026-07-28 only a session of a call's own lets its tool ask questions."""
    inline_wait_seconds: float | None = None
    """How long an MCP client's tools/call waits for the plain result; None leaves it to the service's own setting."""
    tool_inline_wait_seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    """The same for single tools, by name."""
    task_only_tools: frozenset[str] = frozenset()
    """Tools that MCP clients may call as tasks only: who takes no tasks is refused, and not told where the result will be."""
    forwarded_meta_keys: tuple[str, ...] = (META_WILDCARD,)
    """Keys of a client's `_meta` that it is told: names, and beginnings such as `acme/*`. All, because a client that changed no
    more than a URL told it all."""

    def get_inline_wait_seconds(self, tool: str) -> float | None:
        return self.tool_inline_wait_seconds.get(tool, self.inline_wait_seconds)

    def forwards_meta_key(self, key: str) -> bool:
        """Whether it is told this key of a client's `_meta`, if anybody is (`domain.meta`)."""
        return any(
            key.startswith(name.removesuffix(META_WILDCARD)) if name.endswith(META_WILDCARD) else key == name
            for name in self.forwarded_meta_keys
        )
