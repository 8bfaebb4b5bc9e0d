"""Each setting with its default and its description, and what must hold between them."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from ringback.domain.roles import ALL_ROLES
from ringback.domain.upstreams import DisconnectAction
from ringback.domain.usage import DELIVERY_BYTES_DEFAULT, STORED_BYTES_DEFAULT
from ringback.domain.validation import is_loopback
from ringback.settings.values import (
    AnyCaseLogLevel,
    EmptyIsUnset,
    Host,
    IssuerUrl,
    LogLevels,
    Networks,
    Origins,
    PublicUrl,
    Quota,
    RedirectUrls,
    RetentionSeconds,
    Roles,
    Scopes,
    Texts,
    is_wildcard_address,
)


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="RINGBACK_", env_file=".env", extra="ignore", frozen=True, allow_inf_nan=False
    )

    database_url: str = Field(
        default="sqlite:///ringback.db",
        repr=False,  # it may contain a password
        description="The database: sqlite:///PATH, a file that is created if it is missing and serves one process; or "
        "postgresql://USER:PASSWORD@HOST/DATABASE, which any number of nodes share.",
    )
    roles: Roles = Field(
        default=ALL_ROLES,
        description="What this node does, comma-separated: api (REST and MCP), runner (runs calls), dispatcher (sends "
        "callbacks), janitor (recovers and removes). Each role must run on at least one node. SQLite has one node.",
    )
    host: Host = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8090, ge=0, le=65535, description="Port to listen on; 0 chooses a free one.")
    public_url: PublicUrl = Field(
        default=None,
        description="URL at which clients and receivers reach this service; callbacks contain it. Default: http://HOST:PORT.",
    )
    allowed_hosts: Texts = Field(
        default=(), description="Host headers to accept besides the public URL's and loopback, comma-separated."
    )
    allowed_origins: Texts = Field(
        default=(), description="Origins of browser pages that may call the API, comma-separated. None by default."
    )
    auth: Literal["keys", "off"] = Field(
        default="keys",
        description="'keys': every request needs an API key. 'off': none does; allowed on loopback only.",
    )
    ui: bool = Field(
        default=True, description="Whether the dashboard is served, at /ui below the public URL: true or false."
    )
    portal_origins: Origins = Field(
        default=(),
        description="Origins of products that may embed the dashboard's pages by a portal link, comma-separated: https://HOST, "
        "optionally with a port. None by default: links open in a tab of their own.",
    )
    oidc_issuer: IssuerUrl = Field(
        default=None,
        description="Issuer whose access tokens are accepted besides API keys: https://…, exactly as in the tokens' iss.",
    )
    oidc_audience: Texts = Field(
        default=(),
        description=(
            "Audiences of accepted access tokens, comma-separated, for issuers that cannot name resources. Default: the URL "
            "of the requested resource or of one that contains it: the public URL, then /mcp, then /mcp/NAME."
        ),
    )
    oidc_principal_claim: str = Field(
        default="sub",
        min_length=1,
        description="Claim that names the principal. Its value must come from the issuer and not be the user's choice.",
    )
    oidc_scopes: Scopes = Field(
        default=(),
        description=(
            "Scopes that every access token has, comma-separated (calls, webhooks, read, adopt, metrics, admin), for issuers "
            "that cannot grant Ringback's scopes. By default the token's scopes decide: ringback:calls, ringback:webhooks and "
            "so on."
        ),
    )
    oidc_untyped_tokens: bool = Field(
        default=False,
        description=(
            "Accept access tokens whose header has typ JWT or no typ, as those of Keycloak, Entra ID and Auth0's own profile. "
            "Their claims distinguish them from ID tokens. By default typ must be at+jwt (RFC 9068)."
        ),
    )
    oidc_token_seconds_max: float = Field(
        default=86400,
        gt=0,
        description="Longest remaining lifetime (exp) of an accepted access token, in seconds.",
    )
    ui_oidc_client_id: Annotated[str | None, EmptyIsUnset] = Field(
        default=None,
        description="The dashboard's client id at the issuer, so that people can sign in there: authorization code with PKCE, "
        "redirect URI PUBLIC_URL/ui/sign-in/callback. By default they sign in with an API key only.",
    )
    ui_oidc_client_secret: Annotated[SecretStr | None, EmptyIsUnset] = Field(
        default=None, description="The secret of RINGBACK_UI_OIDC_CLIENT_ID, if the issuer gave it one."
    )
    secret_keys: Annotated[SecretStr | None, EmptyIsUnset] = Field(
        default=None,
        description=(
            "Keys for encryption at rest and resume tokens: id:base64 of 32 bytes, comma-separated, newest first. Default: a "
            "key file beside the SQLite database."
        ),
    )
    seal: Literal["secrets", "all"] = Field(
        default="secrets",
        description="What is encrypted at rest: 'secrets' the secrets of webhooks, the bodies of callbacks and MCP sessions; "
        "'all' also the arguments, _meta and results of calls. Rows that are stored already stay as they are.",
    )
    signing_keys: Annotated[SecretStr | None, EmptyIsUnset] = Field(
        default=None,
        description="Ed25519 keys, whsk_…, comma-separated, newest first. Each adds a v1a signature to callbacks, and its "
        "public key is published. Generate one: ringback keys signing. By default only the webhook's secret signs.",
    )
    config: Annotated[Path | None, EmptyIsUnset] = Field(
        default=None, description="A JSON file with mcpServers: the upstreams. By default there are none."
    )
    strict_config: bool = Field(
        default=False,
        description="Refuse a configuration with an entry that cannot be served, or whose name has to be changed. By default "
        "such an entry is skipped or renamed, and GET /v1/upstreams says why.",
    )
    ca_file: Annotated[Path | None, EmptyIsUnset] = Field(
        default=None,
        description="A PEM file with certificates of authorities that are trusted besides the usual ones: by callbacks, "
        "upstreams and the token issuer. Read at the start.",
    )
    login_redirect_urls: RedirectUrls = Field(
        default=(),
        description="URLs of web front ends to which a login to an upstream may send the browser, comma-separated, exactly as "
        "the front ends send them. {upstream} stands for the upstream's name: with it, a hostile server cannot be mixed up "
        "with another one. Loopback and Ringback's own page need no entry.",
    )
    callback_private_cidrs: Networks = Field(
        default=(),
        description="Private networks that may receive callbacks and have authorization servers, comma-separated CIDRs. By "
        "default only public addresses.",
    )
    callback_http: bool = Field(
        default=False,
        description="Allow plain http callbacks to literal addresses inside RINGBACK_CALLBACK_PRIVATE_CIDRS.",
    )
    verify_callbacks: Literal["mcp", "always"] = Field(
        default="mcp",
        description="Which callback URLs must answer a challenge before anything else is sent: 'mcp' those of MCP "
        "subscriptions, 'always' those of every webhook.",
    )
    callback_allowlist: Texts = Field(
        default=(),
        description="URL prefixes that need no challenge, comma-separated: https://hooks.example.com/ringback",
    )
    callback_proxy: Annotated[SecretStr | None, EmptyIsUnset] = Field(
        default=None,
        description="HTTP proxy that connects to receivers (CONNECT): http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT. It "
        "gets the receiver's address, which Ringback has checked. None by default; HTTPS_PROXY does not apply.",
    )
    callback_proxy_except: Networks = Field(
        default=(), description="Networks whose receivers are reached without the proxy, comma-separated CIDRs."
    )
    callback_client_certificates: Texts = Field(
        default=(),
        description="Client certificates for receivers that demand one, comma-separated: https://HOST=FILE. Each file has the "
        "certificate and its private key as PEM, and is shown to this origin only. Read at the start.",
    )
    connect_patience_seconds: float = Field(
        default=30.0, gt=0, le=3600, description="Seconds that a call waits for an unreachable upstream."
    )
    inline_wait_seconds: float = Field(
        default=4.0,
        ge=0,
        le=60,
        description="Seconds that an MCP client waits for a tool's result before it gets a pending result instead. Common "
        "clients give up after 5.",
    )
    task_grace_seconds: float = Field(
        default=1.0,
        ge=0,
        le=50,
        description="Seconds that an MCP client which accepts tasks waits for a tool's result before it gets a task instead.",
    )
    task_event_source: bool = Field(
        default=False,
        description="Send the draft field `eventSource` with a new task to MCP clients that declare MCP Events.",
    )
    on_disconnect: DisconnectAction = Field(
        default=DisconnectAction.KEEP,
        description="What happens to a call when an MCP client of 2026-07-28 closes the stream that waits for it. 'keep': the "
        "call continues, as it does for every other client. 'cancel': the call is cancelled, unless its request declares the "
        "tasks extension or speaks of Ringback (a session, a callback). An upstream or a tool may override it.",
    )
    wait_seconds_max: float = Field(
        default=45.0,
        ge=1,
        le=60,
        description="Longest time, in seconds, that any response waits: tool calls, built-in tools and REST. Proxies cut a "
        "silent response off after 50 or 60. A request may ask for up to 60 and then gets this.",
    )
    drain_seconds: float = Field(
        default=10.0,
        ge=0,
        le=3600,
        description="Seconds that running calls may continue after SIGTERM before they are interrupted.",
    )
    idle_stop_seconds: Annotated[float | None, EmptyIsUnset] = Field(
        default=None,
        gt=0,
        description="Seconds without an open call, a delivery to send and a connected client after which the service stops. "
        "By default it never stops by itself; the service that `ringback mcp` starts stops after 1800.",
    )
    result_retention_seconds: RetentionSeconds = Field(
        default=7 * 86400,
        description="Seconds that a result and its resume tokens are kept after the end of the call. More than 4 days, the "
        "time over which callbacks are retried.",
    )
    event_retention_seconds: RetentionSeconds = Field(
        default=14 * 86400,
        description="Seconds that events and finished deliveries are kept. At least as long as results.",
    )
    tombstone_retention_seconds: RetentionSeconds = Field(
        default=30 * 86400,
        description="Seconds that an idempotency key is kept after its call. At least as long as events.",
    )
    audit_retention_seconds: RetentionSeconds = Field(
        default=90 * 86400, description="Seconds that entries of the audit log are kept."
    )
    quota_open_calls: Quota = Field(
        default=10_000, description="Largest number of queued and running calls of one principal."
    )
    quota_stored_calls: Quota = Field(
        default=10_000_000, description="Largest number of stored calls of one principal, open and ended."
    )
    quota_result_bytes: Quota = Field(
        default=STORED_BYTES_DEFAULT,
        description="Bytes of stored results at which a principal can start no more calls.",
    )
    quota_argument_bytes: Quota = Field(
        default=STORED_BYTES_DEFAULT,
        description="Bytes of arguments and _meta of stored calls of one principal, open and ended: no call that does not fit "
        "starts.",
    )
    quota_event_bytes: Quota = Field(
        default=STORED_BYTES_DEFAULT,
        description="Bytes of data of stored events of one principal: published events that do not fit are refused, those of "
        "upstreams become a gap. Progress of calls gets no events above half of it.",
    )
    quota_delivery_bytes: Quota = Field(
        default=DELIVERY_BYTES_DEFAULT,
        description="Bytes of the bodies of stored callbacks of one principal at which it can start no more calls, publish no "
        "events, and send no callbacks again.",
    )
    quota_webhooks: Quota = Field(default=1_000, description="Largest number of registered webhooks of one principal.")
    quota_subscriptions: Quota = Field(
        default=10_000,
        description="Largest number of live event subscriptions of one principal (MCP events/subscribe).",
    )
    subscription_ttl_seconds: RetentionSeconds = Field(
        default=86_400.0,
        description="Lifetime of an event subscription whose client asks for none, in seconds. A refresh begins it again.",
    )
    subscription_ttl_seconds_min: RetentionSeconds = Field(
        default=60.0,
        description="Shortest lifetime of an event subscription, in seconds. A client that asks for less gets this.",
    )
    subscription_ttl_seconds_max: RetentionSeconds = Field(
        default=30 * 86_400.0,
        description="Longest lifetime of an event subscription, in seconds. A client that asks for more gets this. A client "
        "with an API key that asks for no expiry gets none: its subscription ends with the key.",
    )
    subscription_message_ids: Literal["event", "message"] = Field(
        default="event",
        description="The webhook-id of events of subscriptions: 'event' is the eventId, 'message' an id for each subscription. "
        "Only clients that declare the events extension get 'message'.",
    )
    quota_streams: Quota = Field(
        default=100, description="Largest number of open event streams of one principal, at each node."
    )
    quota_starts_per_minute: Quota = Field(
        default=60_000,
        description="Most requests a minute of one principal that start work (calls, tests, replays), at each node.",
    )
    connections_max: Annotated[int | None, EmptyIsUnset] = Field(
        default=None,
        ge=16,
        description="Largest number of open connections of all clients of this node together. Default: half of the limit on "
        "open files (ulimit -Hn); above 8192, all but 4096.",
    )
    peer_connections_max: int = Field(
        default=256,
        ge=1,
        description="Largest number of open connections of one client address (IPv6: a /64) at this node.",
    )
    trusted_proxies: Networks = Field(
        default=(),
        description="Reverse proxies, comma-separated CIDRs. The rightmost other address in their X-Forwarded-For is the "
        "client's: RINGBACK_PEER_CONNECTIONS_MAX limits its open requests, and not the connections of the proxy.",
    )
    request_bytes_max: int = Field(
        default=4 * 1024 * 1024, ge=1024, description="Largest accepted request body, in bytes."
    )
    log_level: AnyCaseLogLevel = Field(
        default="info", description="Lowest logged level: debug, info, warning or error."
    )
    log_levels: LogLevels = Field(
        default=(),
        description="Levels of single areas, comma-separated: notifier=debug,upstreams=warning. An area is a part of the "
        "service: api, mcp_server, runner, notifier, upstreams, storage, janitor, ...",
    )
    log_format: Literal["text", "json"] = Field(default="text", description="'text' for people, 'json' for machines.")
    callback_traceparent: bool = Field(
        default=True,
        description="Whether callbacks have the headers traceparent and tracestate, if the service makes traces (OTEL_*).",
    )
    disconnect: None = Field(default=None, deprecated="Renamed to on_disconnect.", exclude=True, repr=False)
    """The old name of `on_disconnect`, which a start refuses."""

    @field_validator("*", mode="before")
    @classmethod
    def _strip(cls, value: Any) -> Any:
        """A variable that is made from a file often ends in a line break, which would end up in each URL and header."""
        return value.strip() if isinstance(value, str) else value

    @field_validator("port", mode="before")
    @classmethod
    def _refuse_service_link(cls, value: Any) -> Any:
        """Kubernetes sets a variable NAME_PORT in each pod for each Service of its namespace. One may be named `ringback`."""
        if isinstance(value, str) and value.startswith(("tcp://", "udp://")):
            raise ValueError(
                f"'{value}' is what Kubernetes sets for a Service named 'ringback'. Set 'enableServiceLinks: false' in the "
                "pod, or RINGBACK_PORT to the port to listen on (8090)."
            )
        return value

    @field_validator("disconnect", mode="before")
    @classmethod
    def _refuse_old_name(cls, value: Any) -> None:
        """A setting that was renamed and is ignored would silently change what a disconnect does."""
        if value:
            raise ValueError(
                "has a new name and a new default. Set RINGBACK_ON_DISCONNECT=cancel, or =keep, which is the default, and "
                "remove RINGBACK_DISCONNECT."
            )

    @model_validator(mode="after")
    def _check_auth(self) -> Self:
        if self.auth == "off" and not is_loopback(self.host):
            raise ValueError(
                f"auth is off, and the service would listen on {self.host}. Every client that reaches it would have full "
                "access. Listen on 127.0.0.1, or set RINGBACK_AUTH=keys and run: ringback keys create"
            )
        return self

    @model_validator(mode="after")
    def _check_public_url_given(self) -> Self:
        if self.public_url is None and is_wildcard_address(self.host):
            raise ValueError(
                f"RINGBACK_PUBLIC_URL is required while listening on {self.host}: callbacks contain it, and requests for "
                "other hosts are rejected. Set the URL that clients use, for example https://ringback.example.com"
            )
        return self

    @property
    def base_url(self) -> str:
        return (self.public_url or self.listening_url).rstrip("/")

    @property
    def listening_url(self) -> str:
        """The URL of the address and the port that this node listens on."""
        return self._url_of_host(self.host)

    @property
    def process_url(self) -> str:
        """The URL of this node's own port, from this machine."""
        if not is_wildcard_address(self.host):
            return self.listening_url
        return self._url_of_host("::1" if ":" in self.host else "127.0.0.1")

    def _url_of_host(self, host: str) -> str:
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"
