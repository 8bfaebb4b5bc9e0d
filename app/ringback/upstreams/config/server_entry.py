"""One server of the file: the keys that every MCP host reads, and those under `ringback`.

Host keys that Ringback does not know are ignored. Unknown keys under `ringback` are errors, because a misspelt setting would
otherwise have no effect.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Self, cast
from urllib.parse import SplitResult, urlsplit, urlunsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from ringback.domain import meta
from ringback.domain.call import RerunPolicy
from ringback.domain.upstreams import UPSTREAM_NAME_PATTERN, DisconnectAction, PendingForm
from ringback.domain.validation import is_loopback
from ringback.upstreams.config.expansion import (
    FIELD_ERROR,
    SHOWN_NAME_LENGTH_MAX,
    expand_placeholders,
    make_field_error,
)
from ringback.upstreams.config.models import (
    CONCURRENT_CALLS_MAX,
    INLINE_WAIT_SECONDS_MAX,
    MAX_CONCURRENT_HTTP,
    MAX_CONCURRENT_STDIO,
    META_WILDCARD,
    AuthMethod,
    ClientCredentials,
    ConfigError,
    Isolation,
    UpstreamConfig,
    UpstreamTransport,
)

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 §5.6.2, a token
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")
_TRANSPORT_NAMES: Final = {
    "stdio": UpstreamTransport.STDIO,
    "http": UpstreamTransport.HTTP,
    "streamable-http": UpstreamTransport.HTTP,
    "streamableHttp": UpstreamTransport.HTTP,
}
_TEXT_RULE: Final = "a text that is not empty"


def parse_server_entry(
    name: str, settings: Mapping[str, Any], *, where: str, environment: Mapping[str, str] | None
) -> UpstreamConfig:
    """Raises `ConfigError`, which begins with `where`. Without an environment, placeholders are not expanded."""
    if not UPSTREAM_NAME_PATTERN.fullmatch(name):
        better = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:24].strip("-") or "upstream-1"
        raise ConfigError(f"{where}: names are 1 to 24 of a-z, 0-9 and '-'; rename it, for example to '{better}'.")
    try:
        entry = _choose_model(settings, where).model_validate(settings, context=environment)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_format_first_error(error)}.") from None
    return entry.make_config(name)


def _choose_model(settings: Mapping[str, Any], where: str) -> "type[_StdioEntry | _HttpEntry]":
    declared = settings.get("type" if "type" in settings else "transport")
    if declared == "sse":
        raise ConfigError(
            f"{where}: 'sse' is a transport that MCP has retired; use the server's streamable HTTP URL ('http')."
        )
    if declared is not None:
        if not isinstance(declared, str) or declared not in _TRANSPORT_NAMES:
            raise ConfigError(f"{where}: 'type' must be one of {', '.join(_TRANSPORT_NAMES)}.")
        return _StdioEntry if _TRANSPORT_NAMES[declared] is UpstreamTransport.STDIO else _HttpEntry
    if ("command" in settings) == ("url" in settings):
        raise ConfigError(f"{where}: give either a 'command' (stdio) or a 'url' (HTTP), or say which with 'type'.")
    return _StdioEntry if "command" in settings else _HttpEntry


def _format_first_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(part[:SHOWN_NAME_LENGTH_MAX] for part in first["loc"] if isinstance(part, str))
    problem = first["ctx"]["problem"] if first["type"] == FIELD_ERROR and "ctx" in first else f"must be {_TEXT_RULE}"
    return f"'{path}' {problem}" if path else problem


# -- the types of fields -----------------------------------------------------------------------------------------------------


def _must_be(rule: str) -> WrapValidator:
    """Replaces pydantic's words for a wrong type or range by `must be …`."""

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError as error:
            if any(each["type"] == FIELD_ERROR for each in error.errors(include_url=False)):
                raise
            raise make_field_error(f"must be {rule}") from None

    return WrapValidator(validate)


def _check_object(value: Any) -> Any:
    if not isinstance(value, dict):
        raise make_field_error("must be an object")
    return cast("dict[str, Any]", value)


def _check_not_blank(text: str) -> str:
    if not text.strip():
        raise make_field_error(f"must be {_TEXT_RULE}")
    return text


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url:
        raise make_field_error("must be an http:// or https:// URL with a host")
    return url


def _check_confidential(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise make_field_error("must be https://: a secret is sent there")
    return url


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            shown = name[:SHOWN_NAME_LENGTH_MAX]
            raise make_field_error(
                f"holds '{shown}', which is no valid HTTP header: one line of visible ASCII characters"
            )
    return headers


def _check_meta_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    for key in keys:
        shown = key[:SHOWN_NAME_LENGTH_MAX]
        if not key or META_WILDCARD in key[:-1]:
            raise make_field_error(f"holds '{shown}'; write keys, or how they begin and then '*', for example 'acme/*'")
        if meta.is_reserved_meta_key(key) or key.startswith(meta.RINGBACK_META_PREFIX):
            raise make_field_error(f"names '{shown}', which never goes upstream; leave it out")
    return keys


_Item = Annotated[str, Strict(), AfterValidator(expand_placeholders)]
_Text = Annotated[
    str, Strict(), _must_be(_TEXT_RULE), AfterValidator(_check_not_blank), AfterValidator(expand_placeholders)
]
_Url = Annotated[_Text, AfterValidator(_check_url)]
_Texts = Annotated[tuple[_Item, ...], _must_be("a list of texts; quote numbers")]
_TextMap = Annotated[dict[str, _Item], _must_be("an object of texts; quote numbers and true/false")]
_Bool = Annotated[bool, Strict(), _must_be("true or false")]
_Seconds = Annotated[
    float | None,
    Strict(),
    Field(ge=0, le=INLINE_WAIT_SECONDS_MAX),
    _must_be(f"a number of seconds from 0 to {INLINE_WAIT_SECONDS_MAX:g}"),
]

_DisconnectAction = Annotated[DisconnectAction | None, _must_be(f"one of {', '.join(DisconnectAction)}")]


_PendingForm = Annotated[PendingForm, _must_be(f"one of {', '.join(PendingForm)}")]


_RerunPolicy = Annotated[RerunPolicy, _must_be(f"one of {', '.join(RerunPolicy)}")]


class _OwnSettings(BaseModel):
    """An object under `ringback`."""

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, value: Any) -> Any:
        settings = _check_object(value)
        if unknown := sorted(settings.keys() - cls.model_fields.keys()):
            shown = unknown[0][:SHOWN_NAME_LENGTH_MAX]
            raise make_field_error(f"has no setting '{shown}'; there is {', '.join(cls.model_fields)}")
        return settings


# -- the objects of the file -------------------------------------------------------------------------------------------------


class _ToolSettings(_OwnSettings):
    inline_wait_seconds: _Seconds = None
    on_disconnect: _DisconnectAction = None
    pending: _PendingForm | None = None
    rerun_policy: _RerunPolicy | None = None
    task_only: _Bool = False


class _OAuthSettings(_OwnSettings):
    token_url: Annotated[_Url, AfterValidator(_check_confidential)]
    client_id: _Text
    client_secret: _Text
    scope: _Text = ""
    resource: Annotated[_Text | None, _must_be(_TEXT_RULE)] = None
    auth_method: Annotated[AuthMethod, _must_be(f"one of {', '.join(AuthMethod)}")] = AuthMethod.BASIC

    def make_credentials(self, upstream_url: str) -> ClientCredentials:
        resource = self.resource if "resource" in self.model_fields_set else _strip_url(urlsplit(upstream_url))
        return ClientCredentials(
            token_url=self.token_url,
            client_id=self.client_id,
            client_secret=self.client_secret,
            scope=self.scope or None,
            resource=resource,
            auth_method=self.auth_method,
        )


def _strip_url(parts: SplitResult) -> str:
    """The URL that names the upstream as a resource: without user, query and fragment."""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class _RingbackSettings(_OwnSettings):
    max_concurrent: Annotated[
        int,
        Strict(),
        Field(ge=1, le=CONCURRENT_CALLS_MAX),
        _must_be(f"a whole number from 1 to {CONCURRENT_CALLS_MAX}"),
    ] = 0
    """0 stands for the default of the transport."""
    trust_annotations: _Bool = False
    isolation: Annotated[Isolation, _must_be(f"one of {', '.join(Isolation)}")] = Isolation.SHARED
    inline_wait_seconds: _Seconds = None
    on_disconnect: _DisconnectAction = None
    pending: _PendingForm = PendingForm.RESULT
    rerun_policy: _RerunPolicy = RerunPolicy.NEVER
    tools: Annotated[dict[str, _ToolSettings], _must_be("an object")] = Field(default_factory=dict[str, _ToolSettings])
    pass_meta: Annotated[_Texts, AfterValidator(_check_meta_keys)] = (META_WILDCARD,)
    oauth: Annotated[_OAuthSettings | None, BeforeValidator(_check_object)] = None

    @model_validator(mode="after")
    def _check_rerun_policies(self) -> Self:
        policies = {self.rerun_policy, *(tool.rerun_policy for tool in self.tools.values())}
        if RerunPolicy.IF_SAFE in policies and not self.trust_annotations:
            raise make_field_error(
                "has 'rerun_policy': 'if_safe', which needs 'trust_annotations': true: the tools' annotations say what is safe"
            )
        return self


class _ServerEntry(BaseModel):
    model_config = ConfigDict(extra="ignore")
    transport_kind: ClassVar[UpstreamTransport]
    max_concurrent_default: ClassVar[int]

    ringback: _RingbackSettings = Field(default_factory=_RingbackSettings)

    def make_config(self, name: str) -> UpstreamConfig:
        own = self.ringback
        return UpstreamConfig(
            name=name,
            transport=self.transport_kind,
            max_concurrent=own.max_concurrent or self.max_concurrent_default,
            trusts_annotations=own.trust_annotations,
            isolation=own.isolation,
            inline_wait_seconds=own.inline_wait_seconds,
            tool_inline_wait_seconds={
                tool: settings.inline_wait_seconds
                for tool, settings in own.tools.items()
                if settings.inline_wait_seconds is not None
            },
            on_disconnect=own.on_disconnect,
            tool_on_disconnect={
                tool: settings.on_disconnect
                for tool, settings in own.tools.items()
                if settings.on_disconnect is not None
            },
            pending=own.pending,
            tool_pending={tool: each.pending for tool, each in own.tools.items() if each.pending is not None},
            rerun_policy=own.rerun_policy,
            tool_rerun_policy={
                tool: each.rerun_policy for tool, each in own.tools.items() if each.rerun_policy is not None
            },
            task_only_tools=frozenset(tool for tool, settings in own.tools.items() if settings.task_only),
            forwarded_meta_keys=own.pass_meta,
            **self._transport_fields(),
        )

    def _transport_fields(self) -> Mapping[str, Any]:
        raise NotImplementedError


class _StdioEntry(_ServerEntry):
    transport_kind = UpstreamTransport.STDIO
    max_concurrent_default = MAX_CONCURRENT_STDIO

    command: _Text
    args: _Texts = ()
    env: _TextMap = Field(default_factory=dict[str, str])
    cwd: _Text = ""

    @model_validator(mode="after")
    def _check_oauth(self) -> Self:
        if self.ringback.oauth is not None:
            raise make_field_error(
                "'ringback.oauth' is for upstreams with a 'url'; give a command its secrets with 'env'"
            )
        return self

    def _transport_fields(self) -> Mapping[str, Any]:
        return {"command": self.command, "args": self.args, "env": self.env, "cwd": self.cwd or None}


class _HttpEntry(_ServerEntry):
    transport_kind = UpstreamTransport.HTTP
    max_concurrent_default = MAX_CONCURRENT_HTTP

    url: _Url
    headers: Annotated[_TextMap, AfterValidator(_check_headers)] = Field(default_factory=dict[str, str])

    @model_validator(mode="after")
    def _check_authorization(self) -> Self:
        if self.ringback.oauth is not None and any(name.lower() == "authorization" for name in self.headers):
            raise make_field_error("give either an 'Authorization' header or 'ringback.oauth', which makes one")
        return self

    def _transport_fields(self) -> Mapping[str, Any]:
        oauth = self.ringback.oauth
        credentials = None if oauth is None else oauth.make_credentials(self.url)
        return {"url": self.url, "headers": self.headers, "oauth": credentials}
