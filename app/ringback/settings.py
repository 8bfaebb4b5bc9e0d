"""Settings: read once from RINGBACK_* variables, checked, and handed on in pieces. Only bootstrap and the CLI import them.

Each field's description is what `.env.example` says of it; a test keeps the two equal.
"""

import ipaddress
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from ringback.domain.principal import Scope
from ringback.domain.validation import is_loopback

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class SettingsError(Exception):
    """A setting is missing or wrong; the message names it and says what to do, and never shows a secret's value."""


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="RINGBACK_", env_file=".env", extra="ignore", frozen=True, allow_inf_nan=False
    )

    database_url: str = Field(
        default="sqlite:///ringback.db",
        description="Where everything is kept: sqlite:///PATH (a file, made if missing).",
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8090, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    public_url: str | None = Field(
        default=None,
        description="How clients and receivers reach this service; goes into callbacks. Default: http://HOST:PORT.",
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Further Host headers to accept, comma-separated, beside the public URL's and loopback."
    )
    allowed_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Origins of browser pages that may call the API, comma-separated. None by default."
    )
    auth: Literal["keys", "off"] = Field(
        default="keys", description="'keys': every request needs an API key. 'off': only while listening on loopback."
    )
    oidc_issuer: str | None = Field(
        default=None,
        description="Issuer whose access tokens are accepted beside API keys: https://…, exactly as in the tokens' iss.",
    )
    oidc_audience: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description=(
            "Audiences that access tokens must be for, comma-separated, where the issuer cannot name resources. Default: the "
            "URL of what is asked, or one above it: the public URL, then /mcp, then /mcp/NAME."
        ),
    )
    oidc_principal_claim: str = Field(
        default="sub",
        min_length=1,
        description="Claim that names the owner of what a token's bearer makes. Nobody may be able to choose their own.",
    )
    oidc_scopes: Annotated[tuple[Scope, ...], NoDecode] = Field(
        default=(),
        description=(
            "What every access token may do, comma-separated (calls, webhooks, read, adopt, admin), for issuers that cannot "
            "give out scopes of ours. By default its own scopes decide: ringback:calls, ringback:webhooks and so on."
        ),
    )
    oidc_untyped_tokens: bool = Field(
        default=False,
        description=(
            "Whether access tokens are accepted whose header says typ JWT, or nothing, as those of Keycloak, Entra ID and "
            "Auth0's own profile do. They are told from ID tokens by their claims. By default typ must be at+jwt (RFC 9068)."
        ),
    )
    oidc_token_seconds_max: float = Field(
        default=86400,
        gt=0,
        description="How far in the future the end (exp) of an access token may be; one that lives longer is refused.",
    )
    secret_keys: SecretStr | None = Field(
        default=None,
        description=(
            "Key ring for encryption at rest and resume tokens: id:base64 of 32 bytes, comma-separated, newest first. "
            "Default: a key file beside the SQLite database."
        ),
    )
    signing_keys: SecretStr | None = Field(
        default=None,
        description="Ed25519 keys, whsk_…, comma-separated, newest first: each adds a v1a signature to callbacks, and its "
        "public half is published. Make one: ringback keys signing. By default only the webhook's secret signs.",
    )
    config: Path | None = Field(
        default=None, description="A JSON file with mcpServers: the upstreams whose tools can be called."
    )
    callback_private_cidrs: Annotated[tuple[Network, ...], NoDecode] = Field(
        default=(),
        description="Private ranges that callbacks may go to, comma-separated CIDRs. By default only public addresses.",
    )
    callback_http: bool = Field(
        default=False,
        description="Allow plain http callbacks to literal addresses inside RINGBACK_CALLBACK_PRIVATE_CIDRS.",
    )
    verify_callbacks: Literal["mcp", "always"] = Field(
        default="mcp",
        description="Whose callback URLs must prove that they want callbacks before anything is sent: 'mcp' for MCP "
        "subscriptions, 'always' for every webhook.",
    )
    callback_allowlist: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="URL prefixes that need no such proof, comma-separated: https://hooks.example.com/ringback",
    )
    connect_patience_seconds: float = Field(
        default=30.0, gt=0, le=3600, description="How long a call waits for an upstream that cannot be reached."
    )
    inline_wait_seconds: float = Field(
        default=10.0,
        ge=0,
        le=50,
        description="How long an MCP client waits for a tool's result before it is told where to find it.",
    )
    task_grace_seconds: float = Field(
        default=1.0,
        ge=0,
        le=50,
        description="The same for a client that takes tasks: what ends sooner is answered without one.",
    )
    disconnect: Literal["cancel", "keep"] = Field(
        default="cancel",
        description="'cancel': an MCP client of 2026-07-28 that closes its stream ends the call, as the specification says. "
        "'keep': calls go on.",
    )
    drain_seconds: float = Field(
        default=10.0,
        ge=0,
        le=3600,
        description="How long running calls may go on after SIGTERM before they are cut off.",
    )
    result_retention_seconds: float = Field(
        default=7 * 86400,
        gt=0,
        description="How long a result and its resume tokens live after the end of the call; longer than 4 days, for which "
        "callbacks are tried.",
    )
    event_retention_seconds: float = Field(
        default=14 * 86400,
        gt=0,
        description="How long events and finished deliveries are kept; at least as long as results.",
    )
    tombstone_retention_seconds: float = Field(
        default=30 * 86400,
        gt=0,
        description="How long an idempotency key is remembered after its call; at least as long as events.",
    )
    quota_open_calls: int = Field(
        default=10_000, ge=1, description="Calls of one principal that may be queued or running at once."
    )
    quota_result_bytes: int = Field(
        default=1024**3, ge=1, description="Bytes of stored results with which one principal may still start calls."
    )
    quota_webhooks: int = Field(default=1_000, ge=1, description="Webhooks that one principal may have registered.")
    quota_streams: int = Field(default=100, ge=1, description="Event streams that one principal may have open at once.")
    quota_starts_per_minute: int = Field(
        default=60_000,
        ge=1,
        description="Requests of one principal that start work, in a minute: calls, tests, replays.",
    )
    connections_max: int | None = Field(
        default=None,
        ge=16,
        description="Connections that all clients together may have open at once. Default: the limit on open files (ulimit "
        "-Hn) without half of it, or without 4096 when it is more than 8192.",
    )
    peer_connections_max: int = Field(
        default=256, ge=1, description="Connections that one client address may have open at once (IPv6: one /64)."
    )
    trusted_proxies: Annotated[tuple[Network, ...], NoDecode] = Field(
        default=(),
        description="Reverse proxies, comma-separated CIDRs: RINGBACK_PEER_CONNECTIONS_MAX is not for them, because behind one "
        "everybody has its address.",
    )
    request_bytes_max: int = Field(
        default=4 * 1024 * 1024, ge=1024, description="The largest request body that is read, in bytes."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="How much is logged: debug, info, warning or error."
    )
    log_format: Literal["text", "json"] = Field(default="text", description="'text' for people, 'json' for machines.")

    @field_validator(
        "allowed_hosts", "allowed_origins", "callback_allowlist", "oidc_audience", "oidc_scopes", mode="before"
    )
    @classmethod
    def _split_commas(cls, value: Any) -> Any:
        return _split_list(value) if isinstance(value, str) else value

    @field_validator("callback_private_cidrs", "trusted_proxies", mode="before")
    @classmethod
    def _parse_networks(cls, value: Any) -> Any:
        return [ipaddress.ip_network(part) for part in _split_list(value)] if isinstance(value, str) else value

    @field_validator(
        "public_url", "oidc_issuer", "secret_keys", "signing_keys", "config", "connections_max", mode="before"
    )
    @classmethod
    def _empty_is_unset(cls, value: Any) -> Any:
        return None if value == "" else value

    @field_validator("public_url")
    @classmethod
    def _check_public_url(cls, value: str | None) -> str | None:
        """Clients get it with a path appended, so it is a scheme, a host, and perhaps a port and a path; nothing after that."""
        url = urlsplit(value or "https://unset")
        if url.scheme not in {"http", "https"} or not url.hostname or url.query or url.fragment:
            raise ValueError("write it as https://HOST, with a port and a path if there are any.")
        return value

    @field_validator("oidc_issuer")
    @classmethod
    def _check_oidc_issuer(cls, value: str | None) -> str | None:
        """OpenID Connect Discovery 1.0 §2: https, and neither a query nor a fragment; plain http only on this machine."""
        url = urlsplit(value or "https://unset")
        trusted = url.scheme == "https" or (url.scheme == "http" and is_loopback(url.hostname or ""))
        if not trusted or not url.hostname or url.query or url.fragment:
            raise ValueError(
                "write it as https://HOST, with a port and a path if there are any, as its tokens' iss has it."
            )
        return value

    @model_validator(mode="after")
    def _check_auth(self) -> Self:
        if self.auth == "off" and not is_loopback(self.host):
            raise ValueError(
                f"auth is off, and the service would listen on {self.host}. Without keys everybody who reaches it owns "
                "everything. Listen on 127.0.0.1, or leave RINGBACK_AUTH at 'keys' and run: ringback keys create"
            )
        return self

    @model_validator(mode="after")
    def _check_public_url_given(self) -> Self:
        if self.public_url is None and is_wildcard_address(self.host):
            raise ValueError(
                f"RINGBACK_PUBLIC_URL is needed while listening on {self.host}: it goes into callbacks, and requests for any "
                "other host are refused. Say how clients reach this service, for example https://ringback.example.com"
            )
        return self

    @property
    def base_url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (self.public_url or f"http://{host}:{self.port}").rstrip("/")


def load_settings(**overrides: Any) -> Settings:
    """Settings from the environment and `.env`, with what the command line says on top; None means not said."""
    try:
        return Settings(**{name: value for name, value in overrides.items() if value is not None})
    except ValidationError as problem:
        raise SettingsError(
            "\n".join(_format_error(error["loc"], error["msg"]) for error in problem.errors())
        ) from None


def _split_list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def is_wildcard_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _format_error(location: tuple[int | str, ...], message: str) -> str:
    reason = message.removeprefix("Value error, ")
    return f"RINGBACK_{str(location[0]).upper()}: {reason}" if location else reason
