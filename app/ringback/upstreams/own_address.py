"""Finds entries of the configuration that name this service itself, before anything connects."""

import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import Final
from urllib.parse import SplitResult, urlsplit

from ringback.domain.upstreams import SkippedUpstream, SkipReason
from ringback.domain.validation import is_loopback
from ringback.upstreams.config import UpstreamConfig, UpstreamTransport

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_PROGRAM: Final = re.compile(r"ringback(\.exe)?(\[[a-z,]*\])?([@=<>~!].*)?")
"""`ringback`, and how `uvx` and `pipx run` name it."""
_BRIDGE_COMMAND: Final = "mcp"
_URL_OPTION: Final = "--url"
_URL_VARIABLE: Final = "RINGBACK_URL"


class OwnAddress:
    """The URLs of this service: the public one, and that of its port on this machine."""

    def __init__(self, urls: Collection[str]) -> None:
        self._urls = [urlsplit(url) for url in urls]

    def judge_config(self, config: UpstreamConfig) -> SkippedUpstream | None:
        """Why the entry is not served, if it leads to this service."""
        if config.transport is UpstreamTransport.HTTP:
            leads_here = self._is_own_url(config.url)
        else:
            leads_here = self._runs_own_bridge(config)
        if not leads_here:
            return None
        return SkippedUpstream(
            name=config.name,
            configured_name=config.configured_name or config.name,
            reason=SkipReason.RINGBACK_ITSELF,
            advice="it is this Ringback itself: its tools would be listed and called in a circle. Remove it here; it belongs "
            "into the configuration of your MCP client.",
        )

    def _runs_own_bridge(self, config: UpstreamConfig) -> bool:
        """Whether the command is `ringback mcp`: without a URL it is this machine's service, which is this one."""
        options = find_bridge_options([config.command, *config.args])
        if options is None:
            return False
        url = find_url_option(options) or config.env.get(_URL_VARIABLE)
        return not url or self._is_own_url(f"{url.rstrip('/')}/mcp")

    def _is_own_url(self, url: str) -> bool:
        try:
            parts = urlsplit(url)
        except ValueError:  # that of an option is any text
            return False
        return any(_is_same_server(parts, own) and _is_endpoint(parts, own) for own in self._urls)


def find_bridge_options(command: Sequence[str]) -> Sequence[str] | None:
    """What follows `ringback mcp` in a command that runs it, also by uvx, pipx or `python -m`; None for another command."""
    for index, (program, subcommand) in enumerate(pairwise(command)):
        if subcommand == _BRIDGE_COMMAND and _PROGRAM.fullmatch(PurePath(program).name):
            return command[index + 2 :]
    return None


def find_url_option(options: Sequence[str]) -> str | None:
    for index, option in enumerate(options):
        if option.startswith(f"{_URL_OPTION}="):
            return option.removeprefix(f"{_URL_OPTION}=")
        if option == _URL_OPTION and index + 1 < len(options):
            return options[index + 1]
    return None


def _is_same_server(parts: SplitResult, own: SplitResult) -> bool:
    try:
        ports = [each.port or _DEFAULT_PORTS.get(each.scheme) for each in (parts, own)]
    except ValueError:
        return False
    host, own_host = parts.hostname or "", own.hostname or ""
    return ports[0] == ports[1] and (host == own_host or (is_loopback(host) and is_loopback(own_host)))


def _is_endpoint(parts: SplitResult, own: SplitResult) -> bool:
    """Whether the path is that of an MCP endpoint of this service; the server may have others at the same host."""
    endpoint = f"{own.path.rstrip('/')}/mcp"
    return parts.path.rstrip("/") == endpoint or parts.path.startswith(f"{endpoint}/")
