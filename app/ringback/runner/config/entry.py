"""One server of the file as an `UpstreamConfig`: the keys that every host reads, and those under `ringback` that are ours."""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

from ringback.domain import meta
from ringback.domain.loopback import is_loopback
from ringback.domain.upstreams import UPSTREAM_NAME
from ringback.runner.config.upstream import (
    ANY_END,
    INLINE_WAIT_SECONDS_MAX,
    MAX_CONCURRENT_HTTP,
    MAX_CONCURRENT_MAX,
    MAX_CONCURRENT_STDIO,
    AuthMethod,
    ClientCredentials,
    Isolation,
    Transport,
    UpstreamConfig,
)
from ringback.runner.config.values import NAME_LENGTH_MAX, Values

_OURS: Final = (
    "max_concurrent",
    "trust_annotations",
    "isolation",
    "inline_wait_seconds",
    "tools",
    "pass_meta",
    "oauth",
)
_OURS_OF_A_TOOL: Final = ("inline_wait_seconds", "task_only")
_OAUTH: Final = ("token_url", "client_id", "client_secret", "scope", "resource", "auth_method")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 §5.6.2, a token
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")
_TRANSPORTS: Final = {
    "stdio": Transport.STDIO,
    "http": Transport.HTTP,
    "streamable-http": Transport.HTTP,
    "streamableHttp": Transport.HTTP,
}


def parse_entry(name: str, values: Values) -> UpstreamConfig:
    """Raises `ConfigError`."""
    _check_name(name, values)
    transport = _transport(values)
    ours = values.within("ringback")
    ours.only(_OURS)
    specific = _stdio(values, ours) if transport is Transport.STDIO else _http(values, ours)
    default = MAX_CONCURRENT_STDIO if transport is Transport.STDIO else MAX_CONCURRENT_HTTP
    return UpstreamConfig(
        name=name,
        transport=transport,
        max_concurrent=ours.whole_number("max_concurrent", default=default, at_most=MAX_CONCURRENT_MAX),
        trust_annotations=ours.flag("trust_annotations", default=False),
        isolation=Isolation(ours.choice("isolation", list(Isolation), default=Isolation.SHARED)),
        inline_wait_seconds=ours.seconds("inline_wait_seconds", at_most=INLINE_WAIT_SECONDS_MAX),
        tool_inline_wait_seconds=_tool_windows(ours),
        task_only_tools=_task_only_tools(ours),
        pass_meta=_pass_meta(ours) if "pass_meta" in ours else (ANY_END,),
        **specific,
    )


def _check_name(name: str, values: Values) -> None:
    if not UPSTREAM_NAME.fullmatch(name):
        better = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:24].strip("-") or "upstream-1"
        raise values.error(f"names are 1 to 24 of a-z, 0-9 and '-'; rename it, for example to '{better}'")


def _transport(values: Values) -> Transport:
    told = values.raw("type" if "type" in values else "transport")
    if told == "sse":
        raise values.error("'sse' is a transport that MCP has retired; use the server's streamable HTTP URL ('http')")
    if told is not None:
        if not isinstance(told, str) or told not in _TRANSPORTS:
            raise values.error(f"'type' must be one of {', '.join(_TRANSPORTS)}")
        return _TRANSPORTS[told]
    given = [key for key in ("command", "url") if key in values]
    if len(given) != 1:
        raise values.error("give either a 'command' (stdio) or a 'url' (HTTP), or say which with 'type'")
    return Transport.STDIO if given == ["command"] else Transport.HTTP


def _stdio(values: Values, ours: Values) -> Mapping[str, Any]:
    if "oauth" in ours:
        raise values.error("'ringback.oauth' is for upstreams with a 'url'; give a command its secrets with 'env'")
    return {
        "command": values.text("command"),
        "args": values.texts("args"),
        "env": values.text_map("env"),
        "cwd": values.text("cwd") if "cwd" in values else None,
    }


def _http(values: Values, ours: Values) -> Mapping[str, Any]:
    url, headers = _url(values, "url"), _headers(values)
    if "oauth" in ours and any(name.lower() == "authorization" for name in headers):
        raise values.error("give either an 'Authorization' header or 'ringback.oauth', which makes one")
    return {"url": url, "headers": headers, "oauth": _oauth(ours.within("oauth"), url) if "oauth" in ours else None}


def _url(values: Values, key: str) -> str:
    url = values.text(key)
    parts = _split(url)
    if parts is None or not url.isprintable() or " " in url:
        raise values.error(f"{values.place(key)} must be an http:// or https:// URL with a host")
    return url


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if usable else None


def _headers(values: Values) -> dict[str, str]:
    headers = values.text_map("headers")
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            shown = name[:NAME_LENGTH_MAX]
            raise values.error(f"header '{shown}' is no valid HTTP header: one line of visible ASCII characters")
    return headers


def _tool_windows(ours: Values) -> dict[str, float]:
    windows: dict[str, float] = {}
    for tool, settings in ours.within("tools").each().items():
        settings.only(_OURS_OF_A_TOOL)
        if (wait := settings.seconds("inline_wait_seconds", at_most=INLINE_WAIT_SECONDS_MAX)) is not None:
            windows[tool] = wait
    return windows


def _task_only_tools(ours: Values) -> frozenset[str]:
    tools = ours.within("tools").each()
    return frozenset(tool for tool, settings in tools.items() if settings.flag("task_only", default=False))


def _pass_meta(ours: Values) -> tuple[str, ...]:
    keys, place = ours.texts("pass_meta"), ours.place("pass_meta")
    for key in keys:
        shown = key[:NAME_LENGTH_MAX]
        if not key or ANY_END in key[:-1]:
            raise ours.error(
                f"{place} holds '{shown}'; write keys, or how they begin and then '*', for example 'acme/*'"
            )
        if meta.is_reserved(key) or key.startswith(meta.OURS):
            raise ours.error(f"{place} names '{shown}', which never goes upstream; leave it out")
    return keys


# -- OAuth -----------------------------------------------------------------------------------------------------------------


def _oauth(oauth: Values, upstream_url: str) -> ClientCredentials:
    oauth.only(_OAUTH)
    token_url = _url(oauth, "token_url")
    if not _is_private_to_us(urlsplit(token_url)):
        raise oauth.error(f"{oauth.place('token_url')} must be https://: a secret is sent there")
    return ClientCredentials(
        token_url=token_url,
        client_id=oauth.text("client_id"),
        client_secret=oauth.text("client_secret"),
        scope=oauth.text("scope") if "scope" in oauth else None,
        resource=_resource(oauth, upstream_url),
        auth_method=AuthMethod(oauth.choice("auth_method", list(AuthMethod), default=AuthMethod.BASIC)),
    )


def _is_private_to_us(url: SplitResult) -> bool:
    """Whether nobody on the way can read along: TLS, or not leaving this machine."""
    return url.scheme == "https" or is_loopback(url.hostname or "")


def _resource(oauth: Values, upstream_url: str) -> str | None:
    """The upstream itself, as MCP's authorization wants it; some authorization servers refuse to hear it, so null is none."""
    if "resource" not in oauth:
        parts = urlsplit(upstream_url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    return None if oauth.raw("resource") is None else oauth.text("resource")
