"""One server of the file: the keys that every MCP host reads, and those under `ringback`.

Host keys that Ringback does not know are ignored. Hosts name the URL of a server differently (`URL_KEYS`).
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from ringback.domain.upstreams import SkipReason
from ringback.suggestions import find_similar
from ringback.upstreams.config.expansion import FIELD_ERROR, SHOWN_NAME_LENGTH_MAX, make_field_error
from ringback.upstreams.config.fields import TEXT_RULE, Text, TextMap, Texts, Url, check_headers
from ringback.upstreams.config.models import (
    MAX_CONCURRENT_HTTP,
    MAX_CONCURRENT_STDIO,
    ConfigError,
    UpstreamConfig,
    UpstreamTransport,
)
from ringback.upstreams.config.own_settings import RingbackSettings

URL_KEYS: Final = ("httpUrl", "url", "serverUrl")
"""Gemini CLI has the streamable URL as `httpUrl` beside an SSE one as `url`; Windsurf has `serverUrl`."""
_TRANSPORT_NAMES: Final = {
    "stdio": UpstreamTransport.STDIO,
    "http": UpstreamTransport.HTTP,
    "streamable-http": UpstreamTransport.HTTP,
    "streamableHttp": UpstreamTransport.HTTP,
}
_RETIRED_TRANSPORT_NAME: Final = "sse"
_RETIRED_PATH: Final = "/sse"
"""How the URLs of servers with the retired transport end, by convention."""


class EntryRefused(ConfigError):
    """An entry cannot be served. `advice` says why and what to do, `reason` is the kind of the fault."""

    def __init__(self, where: str, advice: str, reason: SkipReason = SkipReason.INVALID_ENTRY) -> None:
        super().__init__(f"{where}: {advice}")
        self.advice = advice
        self.reason = reason


def parse_server_entry(
    name: str,
    settings: Mapping[str, Any],
    *,
    where: str,
    environment: Mapping[str, str] | None,
    configured_name: str = "",
) -> UpstreamConfig:
    """Raises `EntryRefused`, which begins with `where`. Without an environment, placeholders are not expanded."""
    settings = _choose_url(settings)
    try:
        entry = _choose_model(settings, where).model_validate(settings, context=environment)
    except ValidationError as error:
        raise EntryRefused(where, *_format_first_error(error)) from None
    return entry.make_config(name, configured_name)


def _choose_url(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings with one URL, as `url`: the first that does not look like one of the retired transport."""
    keys = [key for key in URL_KEYS if key in settings]
    if not keys:
        return settings
    chosen = next((key for key in keys if not _is_retired_url(settings[key])), keys[0])
    declared = {} if chosen != "httpUrl" else {"type": "http"}
    return {**settings, "url": settings[chosen], **declared}


def _is_retired_url(url: object) -> bool:
    try:
        return isinstance(url, str) and urlsplit(url).path.rstrip("/").endswith(_RETIRED_PATH)
    except ValueError:
        return False


def _choose_model(settings: Mapping[str, Any], where: str) -> "type[_StdioEntry | _HttpEntry]":
    declared = settings.get("type" if "type" in settings else "transport")
    if declared == _RETIRED_TRANSPORT_NAME:
        raise EntryRefused(
            where,
            "'sse' is a transport that MCP has retired; use the server's streamable HTTP URL ('http').",
            SkipReason.RETIRED_TRANSPORT,
        )
    if declared is not None:
        if not isinstance(declared, str) or declared not in _TRANSPORT_NAMES:
            raise EntryRefused(where, f"'type' must be one of {', '.join(_TRANSPORT_NAMES)}.")
        return _StdioEntry if _TRANSPORT_NAMES[declared] is UpstreamTransport.STDIO else _HttpEntry
    if ("command" in settings) == ("url" in settings):
        hint = "" if "url" in settings else _suggest_transport_key(settings)
        raise EntryRefused(where, f"give either a 'command' (stdio) or a 'url' (HTTP), or say which with 'type'.{hint}")
    if "url" in settings and _is_retired_url(settings["url"]):
        raise EntryRefused(
            where,
            "its URL ends in /sse, as those of the transport SSE, which MCP has retired. Use the server's streamable HTTP URL "
            '(often it ends in /mcp), or add "type": "http" if this is one.',
            SkipReason.RETIRED_TRANSPORT,
        )
    return _StdioEntry if "command" in settings else _HttpEntry


def _suggest_transport_key(settings: Mapping[str, Any]) -> str:
    """Asks about a key that is perhaps misspelled. A key of another host is none of these, and is ignored."""
    suggested = ((key[:SHOWN_NAME_LENGTH_MAX], find_similar(key, ("command", "url"))) for key in settings)
    return next((f" Is '{key}' a misspelled '{meant}'?" for key, meant in suggested if meant), "")


def _format_first_error(error: ValidationError) -> tuple[str, SkipReason]:
    first = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(part[:SHOWN_NAME_LENGTH_MAX] for part in first["loc"] if isinstance(part, str))
    context = first.get("ctx", {}) if first["type"] == FIELD_ERROR else {}
    problem = context.get("problem", f"must be {TEXT_RULE}")
    return f"'{path}' {problem}." if path else f"{problem}.", context.get("reason", SkipReason.INVALID_ENTRY)


# -- the objects of the file -------------------------------------------------------------------------------------------------


class _ServerEntry(BaseModel):
    model_config = ConfigDict(extra="ignore")
    transport_kind: ClassVar[UpstreamTransport]
    max_concurrent_default: ClassVar[int]

    ringback: RingbackSettings = Field(default_factory=RingbackSettings)

    def make_config(self, name: str, configured_name: str) -> UpstreamConfig:
        own = self.ringback
        return UpstreamConfig(
            name=name,
            configured_name=configured_name,
            transport=self.transport_kind,
            server_id=own.server_id,
            max_concurrent=own.max_concurrent or self.max_concurrent_default,
            trusts_annotations=own.trust_annotations,
            checks_arguments=own.check_arguments,
            protocol=own.protocol,
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

    command: Text
    args: Texts = ()
    env: TextMap = Field(default_factory=dict[str, str])
    cwd: Text = ""

    @model_validator(mode="after")
    def _check_oauth(self) -> Self:
        for setting in ("oauth", "credentials", "login"):
            if setting in self.ringback.model_fields_set:
                raise make_field_error(
                    f"'ringback.{setting}' is for upstreams with a 'url'; give a command its secrets with 'env'"
                )
        return self

    def _transport_fields(self) -> Mapping[str, Any]:
        return {"command": self.command, "args": self.args, "env": self.env, "cwd": self.cwd or None}


class _HttpEntry(_ServerEntry):
    transport_kind = UpstreamTransport.HTTP
    max_concurrent_default = MAX_CONCURRENT_HTTP

    url: Url
    headers: Annotated[TextMap, AfterValidator(check_headers)] = Field(default_factory=dict[str, str])

    @model_validator(mode="after")
    def _check_authorization(self) -> Self:
        if self.ringback.oauth is not None and any(name.lower() == "authorization" for name in self.headers):
            raise make_field_error("give either an 'Authorization' header or 'ringback.oauth', which makes one")
        return self

    def _transport_fields(self) -> Mapping[str, Any]:
        oauth = self.ringback.oauth
        credentials = None if oauth is None else oauth.make_credentials(self.url)
        return {
            "url": self.url,
            "headers": self.headers,
            "oauth": credentials,
            "credentials": self.ringback.credentials,
            "login": self.ringback.login.make_settings(),
        }
