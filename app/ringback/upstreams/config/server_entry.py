"""One server of the file as an `UpstreamConfig`: the keys that every host reads, and those under `ringback` that are ours."""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

from ringback.domain import meta
from ringback.domain.upstreams import UPSTREAM_NAME_PATTERN
from ringback.domain.validation import is_loopback
from ringback.upstreams.config.fields import SHOWN_NAME_LENGTH_MAX, ConfigFields
from ringback.upstreams.config.models import (
    CONCURRENT_CALLS_MAX,
    INLINE_WAIT_SECONDS_MAX,
    MAX_CONCURRENT_HTTP,
    MAX_CONCURRENT_STDIO,
    META_WILDCARD,
    AuthMethod,
    ClientCredentials,
    Isolation,
    UpstreamConfig,
    UpstreamTransport,
)

_RINGBACK_SETTINGS: Final = (
    "max_concurrent",
    "trust_annotations",
    "isolation",
    "inline_wait_seconds",
    "tools",
    "pass_meta",
    "oauth",
)
_TOOL_SETTINGS: Final = ("inline_wait_seconds", "task_only")
_OAUTH_SETTINGS: Final = ("token_url", "client_id", "client_secret", "scope", "resource", "auth_method")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 §5.6.2, a token
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")
_TRANSPORT_NAMES: Final = {
    "stdio": UpstreamTransport.STDIO,
    "http": UpstreamTransport.HTTP,
    "streamable-http": UpstreamTransport.HTTP,
    "streamableHttp": UpstreamTransport.HTTP,
}


def parse_server_entry(name: str, values: ConfigFields) -> UpstreamConfig:
    """Raises `ConfigError`."""
    _check_name(name, values)
    transport = _parse_transport(values)
    our_settings = values.get_object("ringback")
    our_settings.reject_unknown(_RINGBACK_SETTINGS)
    specific = (
        _parse_stdio(values, our_settings)
        if transport is UpstreamTransport.STDIO
        else _parse_http(values, our_settings)
    )
    default = MAX_CONCURRENT_STDIO if transport is UpstreamTransport.STDIO else MAX_CONCURRENT_HTTP
    return UpstreamConfig(
        name=name,
        transport=transport,
        max_concurrent=our_settings.get_int("max_concurrent", default=default, at_most=CONCURRENT_CALLS_MAX),
        trusts_annotations=our_settings.get_bool("trust_annotations", default=False),
        isolation=Isolation(our_settings.get_choice("isolation", list(Isolation), default=Isolation.SHARED)),
        inline_wait_seconds=our_settings.get_seconds("inline_wait_seconds", at_most=INLINE_WAIT_SECONDS_MAX),
        tool_inline_wait_seconds=_parse_tool_inline_waits(our_settings),
        task_only_tools=_parse_task_only_tools(our_settings),
        forwarded_meta_keys=_parse_pass_meta(our_settings) if "pass_meta" in our_settings else (META_WILDCARD,),
        **specific,
    )


def _check_name(name: str, values: ConfigFields) -> None:
    if not UPSTREAM_NAME_PATTERN.fullmatch(name):
        better = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:24].strip("-") or "upstream-1"
        raise values.make_error(f"names are 1 to 24 of a-z, 0-9 and '-'; rename it, for example to '{better}'")


def _parse_transport(values: ConfigFields) -> UpstreamTransport:
    declared = values.get_raw("type" if "type" in values else "transport")
    if declared == "sse":
        raise values.make_error(
            "'sse' is a transport that MCP has retired; use the server's streamable HTTP URL ('http')"
        )
    if declared is not None:
        if not isinstance(declared, str) or declared not in _TRANSPORT_NAMES:
            raise values.make_error(f"'type' must be one of {', '.join(_TRANSPORT_NAMES)}")
        return _TRANSPORT_NAMES[declared]
    given = [key for key in ("command", "url") if key in values]
    if len(given) != 1:
        raise values.make_error("give either a 'command' (stdio) or a 'url' (HTTP), or say which with 'type'")
    return UpstreamTransport.STDIO if given == ["command"] else UpstreamTransport.HTTP


def _parse_stdio(values: ConfigFields, our_settings: ConfigFields) -> Mapping[str, Any]:
    if "oauth" in our_settings:
        raise values.make_error("'ringback.oauth' is for upstreams with a 'url'; give a command its secrets with 'env'")
    return {
        "command": values.get_text("command"),
        "args": values.get_texts("args"),
        "env": values.get_text_map("env"),
        "cwd": values.get_text("cwd") if "cwd" in values else None,
    }


def _parse_http(values: ConfigFields, our_settings: ConfigFields) -> Mapping[str, Any]:
    url, headers = _parse_url(values, "url"), _parse_headers(values)
    if "oauth" in our_settings and any(name.lower() == "authorization" for name in headers):
        raise values.make_error("give either an 'Authorization' header or 'ringback.oauth', which makes one")
    return {
        "url": url,
        "headers": headers,
        "oauth": _parse_oauth(our_settings.get_object("oauth"), url) if "oauth" in our_settings else None,
    }


def _parse_url(values: ConfigFields, key: str) -> str:
    url = values.get_text(key)
    url_parts = _split_url(url)
    if url_parts is None or not url.isprintable() or " " in url:
        raise values.make_error(f"{values.quote_path(key)} must be an http:// or https:// URL with a host")
    return url


def _split_url(url: str) -> SplitResult | None:
    try:
        url_parts = urlsplit(url)
        usable = url_parts.scheme in {"http", "https"} and bool(url_parts.hostname) and url_parts.port != 0
    except ValueError:
        return None
    return url_parts if usable else None


def _parse_headers(values: ConfigFields) -> dict[str, str]:
    headers = values.get_text_map("headers")
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            shown = name[:SHOWN_NAME_LENGTH_MAX]
            raise values.make_error(f"header '{shown}' is no valid HTTP header: one line of visible ASCII characters")
    return headers


def _parse_tool_inline_waits(our_settings: ConfigFields) -> dict[str, float]:
    windows: dict[str, float] = {}
    for tool, settings in our_settings.get_object("tools").get_objects().items():
        settings.reject_unknown(_TOOL_SETTINGS)
        if (wait := settings.get_seconds("inline_wait_seconds", at_most=INLINE_WAIT_SECONDS_MAX)) is not None:
            windows[tool] = wait
    return windows


def _parse_task_only_tools(our_settings: ConfigFields) -> frozenset[str]:
    tools = our_settings.get_object("tools").get_objects()
    return frozenset(tool for tool, settings in tools.items() if settings.get_bool("task_only", default=False))


def _parse_pass_meta(our_settings: ConfigFields) -> tuple[str, ...]:
    keys, quoted_path = our_settings.get_texts("pass_meta"), our_settings.quote_path("pass_meta")
    for key in keys:
        shown = key[:SHOWN_NAME_LENGTH_MAX]
        if not key or META_WILDCARD in key[:-1]:
            raise our_settings.make_error(
                f"{quoted_path} holds '{shown}'; write keys, or how they begin and then '*', for example 'acme/*'"
            )
        if meta.is_reserved_meta_key(key) or key.startswith(meta.RINGBACK_META_PREFIX):
            raise our_settings.make_error(f"{quoted_path} names '{shown}', which never goes upstream; leave it out")
    return keys


# -- OAuth -----------------------------------------------------------------------------------------------------------------


def _parse_oauth(oauth: ConfigFields, upstream_url: str) -> ClientCredentials:
    oauth.reject_unknown(_OAUTH_SETTINGS)
    token_url = _parse_url(oauth, "token_url")
    if not _is_confidential(urlsplit(token_url)):
        raise oauth.make_error(f"{oauth.quote_path('token_url')} must be https://: a secret is sent there")
    return ClientCredentials(
        token_url=token_url,
        client_id=oauth.get_text("client_id"),
        client_secret=oauth.get_text("client_secret"),
        scope=oauth.get_text("scope") if "scope" in oauth else None,
        resource=_parse_resource(oauth, upstream_url),
        auth_method=AuthMethod(oauth.get_choice("auth_method", list(AuthMethod), default=AuthMethod.BASIC)),
    )


def _is_confidential(url: SplitResult) -> bool:
    """Whether nobody on the way can read along: TLS, or not leaving this machine."""
    return url.scheme == "https" or is_loopback(url.hostname or "")


def _parse_resource(oauth: ConfigFields, upstream_url: str) -> str | None:
    """The upstream itself, as MCP's authorization wants it; some authorization servers refuse to hear it, so null is none."""
    if "resource" not in oauth:
        url_parts = urlsplit(upstream_url)
        return urlunsplit((url_parts.scheme, url_parts.netloc.rpartition("@")[2], url_parts.path, "", ""))
    return None if oauth.get_raw("resource") is None else oauth.get_text("resource")
