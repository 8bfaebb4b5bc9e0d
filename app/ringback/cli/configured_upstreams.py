"""The upstreams of the configuration file and of the command line, without the service that connects to them."""

import os
import shlex
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from ringback.cli.client_options import URL_DEFAULT
from ringback.cli.output import print_message
from ringback.domain.upstreams import SkippedUpstream, SkipReason
from ringback.settings import Settings
from ringback.upstreams.config import (
    LoadedUpstreams,
    UpstreamConfig,
    UpstreamEntry,
    load_upstreams,
    parse_upstream_option,
)

ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", envvar="RINGBACK_CONFIG", help="A JSON file with mcpServers.")
]
UpstreamOption = Annotated[
    list[str] | None,
    typer.Option("--upstream", metavar="NAME=COMMAND_OR_URL", help="A further upstream. May be repeated."),
]

DEMO_UPSTREAM: Final = f"demo={shlex.join([sys.executable, '-m', 'ringback.cli.demo_upstream'])}"


def load_configured_upstreams(settings: Settings, options: Sequence[str], *, dev: bool) -> list[UpstreamEntry]:
    """The entries of the configuration file and of the command line. With `dev` and no upstream, the demo upstream."""
    upstreams: list[UpstreamEntry] = [parse_upstream_option(option) for option in options]
    if settings.config is not None:
        loaded = load_upstreams(settings.config, os.environ)
        if settings.strict_config:
            loaded.require_all()
        upstreams += _yield_names(loaded, {each.name for each in upstreams})
    if dev and not upstreams:
        print_message(
            f"No upstream is configured; a demo is used. Try it: ringback call demo count_primes --wait{_url_option(settings)}"
        )
        upstreams.append(parse_upstream_option(DEMO_UPSTREAM))
    return upstreams


def _yield_names(loaded: LoadedUpstreams, taken: Collection[str]) -> list[UpstreamEntry]:
    """The entries of the file, without those whose names upstreams of the command line have."""
    return [
        SkippedUpstream(
            name=entry.name,
            configured_name=entry.configured_name or entry.name,
            reason=SkipReason.NAME_CONFLICT,
            advice=f"an --upstream of the command line has the name '{entry.name}'; rename one of them.",
        )
        if isinstance(entry, UpstreamConfig) and entry.name in taken
        else entry
        for entry in loaded.entries
    ]


def _url_option(settings: Settings) -> str:
    """The option with which a command finds this service; empty if the command's default does."""
    if settings.port == 0:
        return " --url URL, with the url that is logged below"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{settings.port}"
    return "" if url == URL_DEFAULT else f" --url {url}"
