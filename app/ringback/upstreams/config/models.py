"""The configuration of one upstream as a value: defaults applied, placeholders expanded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

from ringback.domain.call import RerunPolicy
from ringback.domain.upstream_logins import CredentialsScope
from ringback.domain.upstreams import DisconnectAction, PendingForm, SkippedUpstream, ToolConfig

MAX_CONCURRENT_STDIO: Final = 16
"""A child has one process and one pipe; more concurrent calls only wait inside it."""
MAX_CONCURRENT_HTTP: Final = 256
"""Each waiting call holds a connection; 256 of them stay below the usual limit of 1024 open files."""
CONCURRENT_CALLS_MAX: Final = 10_000
"""The number of waiting calls that one process is designed for."""
INLINE_WAIT_SECONDS_MAX: Final = 60.0
"""The longest wait that can be configured, as everywhere; RINGBACK_WAIT_SECONDS_MAX bounds it."""
META_WILDCARD: Final = "*"
"""Ends a key prefix in `UpstreamConfig.forwarded_meta_keys`."""


class UpstreamTransport(StrEnum):
    STDIO = "stdio"
    HTTP = "http"


class Isolation(StrEnum):
    """Which calls share a session (with stdio: a process): all calls, the calls of one principal, or none."""

    SHARED = "shared"
    PRINCIPAL = "principal"
    CALL = "call"


class ProtocolChoice(StrEnum):
    """Which protocol the sessions with an upstream speak."""

    AUTO = "auto"
    """The newest that the upstream supports."""
    LEGACY = "legacy"
    """2025-11-25 or earlier. Tools that send elicitations may exist only there (FastMCP 4)."""


class AuthMethod(StrEnum):
    """Where the client credentials stand in a token request (RFC 6749 §2.3.1): in a header or in the form."""

    BASIC = "client_secret_basic"
    POST = "client_secret_post"


class ConfigError(ValueError):
    """The configuration of the upstreams is invalid; the message says where and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """The OAuth client (RFC 6749 §4.4) with which Ringback fetches access tokens for an upstream.

    The token endpoint is configured and never discovered. With discovery, a server that impersonates the upstream could choose
    the recipient of the secret.
    """

    token_url: str = field(repr=False)
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    resource: str | None = field(default=None, repr=False)
    """The resource that the token is for (RFC 8707); MCP 2025-06-18 and later require it. None: the request omits it."""
    auth_method: AuthMethod = AuthMethod.BASIC


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginSettings:
    """How owners of credentials sign in to an upstream with a browser (OAuth authorization code with PKCE).

    Everything is discovered. What the operator configures here replaces what would be discovered or registered.
    """

    client_id: str | None = None
    """A client that the operator registered by hand; None: a client id metadata document, or dynamic registration."""
    client_secret: str | None = field(default=None, repr=False)
    """Needs `issuer`: it is sent to no other authorization server."""
    scope: str | None = None
    issuer: str | None = None
    """The only authorization server that is accepted; None: the one that the upstream's metadata names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamConfig:
    """One upstream. `command`, `args`, `env` and `cwd` belong to stdio, `url`, `headers` and `oauth` to HTTP."""

    name: str
    configured_name: str = ""
    """The name as the file has it, if `name` is another one: hosts allow names that a URL cannot contain."""
    transport: UpstreamTransport
    command: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Added to the few variables that the SDK considers safe to inherit. The child inherits no other variable."""
    cwd: str | None = None
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    oauth: ClientCredentials | None = None
    credentials: CredentialsScope = CredentialsScope.SHARED
    """Whose login calls use, if the upstream requires one. `PRINCIPAL` gives each principal a connection of its own."""
    login: LoginSettings = LoginSettings()
    max_concurrent: int
    trusts_annotations: bool = False
    """Whether readOnlyHint and idempotentHint of its tools permit a second run of a call."""
    checks_arguments: bool = True
    """False for a server that converts arguments itself, such as `"5"` for an integer (FastMCP)."""
    protocol: ProtocolChoice = ProtocolChoice.AUTO
    isolation: Isolation = Isolation.SHARED
    """On a legacy child, a tool that runs beside other calls can send elicitations only with `CALL`."""
    inline_wait_seconds: float | None = None
    """How long an MCP client's tools/call waits for the plain result; None selects the setting of the service."""
    tool_inline_wait_seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    """The same for single tools, by name; it overrides `inline_wait_seconds`."""
    on_disconnect: DisconnectAction | None = None
    """Whether a disconnect of a 2026-07-28 client cancels its call; None selects the setting of the service."""
    tool_on_disconnect: Mapping[str, DisconnectAction] = field(default_factory=dict[str, DisconnectAction])
    """The same for single tools, by name; it overrides `on_disconnect`."""
    pending: PendingForm = PendingForm.RESULT
    tool_pending: Mapping[str, PendingForm] = field(default_factory=dict[str, PendingForm])
    """The same for single tools, by name; it overrides `pending`."""
    server_id: str | None = None
    """What the operator calls the server: it keeps its calls if its URL or command changes. None: these identify it."""
    rerun_policy: RerunPolicy = RerunPolicy.NEVER
    """Whether a call may run again after its runner died during the dispatch, unless its client sets a policy."""
    tool_rerun_policy: Mapping[str, RerunPolicy] = field(default_factory=dict[str, RerunPolicy])
    """The same for single tools, by name; it overrides `rerun_policy`."""
    task_only_tools: frozenset[str] = frozenset()
    """Tools that MCP clients may only call as tasks. A client without tasks gets an error instead of a pending result."""
    forwarded_meta_keys: tuple[str, ...] = (META_WILDCARD,)
    """Keys of a client's `_meta` that the upstream receives: names and prefixes such as `acme/*`. The default forwards all
    keys, because a client that only changed its URL sent all of them before."""

    @property
    def takes_login(self) -> bool:
        """Whether owners of credentials may sign in to the upstream: the configuration has none for it."""
        has_header = any(name.lower() == "authorization" for name in self.headers)
        has_user = "@" in urlsplit(self.url).netloc
        return self.transport is UpstreamTransport.HTTP and self.oauth is None and not has_header and not has_user

    @property
    def tools_with_settings(self) -> frozenset[str]:
        """The tools for which the entry has settings of their own. A misspelt name is one, too."""
        by_tool = (self.tool_inline_wait_seconds, self.tool_on_disconnect, self.tool_pending, self.tool_rerun_policy)
        return self.task_only_tools.union(*by_tool)

    def get_tool_config(self, tool: str) -> ToolConfig:
        return ToolConfig(
            inline_wait_seconds=self.tool_inline_wait_seconds.get(tool, self.inline_wait_seconds),
            on_disconnect=self.tool_on_disconnect.get(tool, self.on_disconnect),
            pending=self.tool_pending.get(tool, self.pending),
            is_task_only=tool in self.task_only_tools,
            rerun_policy=self.tool_rerun_policy.get(tool, self.rerun_policy),
            checks_arguments=self.checks_arguments,
        )

    def forwards_meta_key(self, key: str) -> bool:
        """Whether the upstream receives this key of a client's `_meta`. Reserved keys (`domain.meta`) are removed elsewhere."""
        return any(
            key.startswith(name.removesuffix(META_WILDCARD)) if name.endswith(META_WILDCARD) else key == name
            for name in self.forwarded_meta_keys
        )


UpstreamEntry = UpstreamConfig | SkippedUpstream
"""An entry of a configuration: one that is served, or one that is skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedUpstreams:
    """The entries of one file, in its order, without disabled ones."""

    source: str
    entries: tuple[UpstreamEntry, ...]

    @property
    def configs(self) -> tuple[UpstreamConfig, ...]:
        return tuple(entry for entry in self.entries if isinstance(entry, UpstreamConfig))

    @property
    def skipped(self) -> tuple[SkippedUpstream, ...]:
        return tuple(entry for entry in self.entries if isinstance(entry, SkippedUpstream))

    def require_all(self) -> None:
        """Raise `ConfigError` for the first entry that is skipped, or that is served under another name than its own."""
        for entry in self.entries:
            where = f"{self.source}: upstream '{entry.configured_name}'"
            if isinstance(entry, SkippedUpstream):
                raise ConfigError(f"{where}: {entry.advice}")
            if entry.configured_name:
                raise ConfigError(
                    f"{where}: names are 1 to 24 of a-z, 0-9 and '-'; rename it, for example to '{entry.name}'."
                )
