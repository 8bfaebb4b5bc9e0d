"""`ringback serve`: runs the service."""

import os
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ringback import server
from ringback.cli.client_options import URL_DEFAULT
from ringback.cli.output import DATABASE_HELP, EXIT_NOT_DONE, TRY_AGAIN, exit_on_errors, print_message
from ringback.cli.service_errors import SERVICE_ERRORS
from ringback.domain.errors import StoreUnavailable
from ringback.settings import Settings, load_settings
from ringback.upstreams.config import UpstreamConfig, load_upstreams, parse_upstream_option

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", envvar="RINGBACK_CONFIG", help="A JSON file with mcpServers."),
]
UpstreamOption = Annotated[
    list[str] | None,
    typer.Option("--upstream", metavar="NAME=COMMAND_OR_URL", help="A further upstream. May be repeated."),
]

LOOPBACK_NETWORKS: Final = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
DEMO_UPSTREAM: Final = f"demo={shlex.join([sys.executable, '-m', 'ringback.cli.demo_upstream'])}"


def exit_code_of_start(error: Exception) -> int:
    """`TRY_AGAIN` if a supervisor such as systemd should restart the service; not if an operator has to act first."""
    is_passing = isinstance(error, StoreUnavailable) and not error.needs_operator
    return TRY_AGAIN if is_passing or isinstance(error, server.AddressTaken) else EXIT_NOT_DONE


@exit_on_errors(*SERVICE_ERRORS, exit_code=exit_code_of_start)
def serve(
    *,
    dev: Annotated[
        bool,
        typer.Option(
            "--dev",
            help="For this machine only: no API keys, callbacks to loopback over http, and a slow demo upstream if none is "
            "configured. Everything else is as in production.",
        ),
    ] = False,
    config: ConfigFile = None,
    upstream: UpstreamOption = None,
    database: Annotated[
        str | None,
        typer.Option("--database", metavar="URL", envvar="RINGBACK_DATABASE_URL", help=DATABASE_HELP),
    ] = None,
    roles: Annotated[
        str | None,
        typer.Option(
            "--roles",
            envvar="RINGBACK_ROLES",
            help="What this node does, comma-separated: api, runner, dispatcher, janitor. Default: everything.",
        ),
    ] = None,
    host: Annotated[str | None, typer.Option("--host", envvar="RINGBACK_HOST", help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option("--port", envvar="RINGBACK_PORT", help="Port to listen on.")] = None,
    log_level: Annotated[
        str | None, typer.Option("--log-level", envvar="RINGBACK_LOG_LEVEL", help="debug, info, warning or error.")
    ] = None,
    log_format: Annotated[
        str | None, typer.Option("--log-format", envvar="RINGBACK_LOG_FORMAT", help="text or json.")
    ] = None,
) -> None:
    """Run the service. Every setting is a RINGBACK_* variable. Options take precedence."""
    options = {
        "config": config,
        "database_url": database,
        "roles": roles,
        "host": host,
        "port": port,
        "log_level": log_level,
        "log_format": log_format,
    }
    settings = load_development_settings(options) if dev else load_settings(**options)
    reread = partial(load_configured_upstreams, settings, upstream or [], dev=dev)
    server.serve(settings, reread(), read_configs=reread)


def load_development_settings(options: dict[str, Any]) -> Settings:
    """The settings without authentication and with callbacks to this machine."""
    ranges = load_settings(**options, auth="off").callback_private_cidrs
    return load_settings(
        **options, auth="off", callback_http=True, callback_private_cidrs=(*ranges, *LOOPBACK_NETWORKS)
    )


def load_configured_upstreams(settings: Settings, options: Sequence[str], *, dev: bool) -> list[UpstreamConfig]:
    """The upstreams of the configuration file and of the command line. With `dev` and no upstream, the demo upstream."""
    upstreams = [parse_upstream_option(option) for option in options]
    if settings.config is not None:
        upstreams += load_upstreams(settings.config, os.environ)
    if dev and not upstreams:
        print_message(
            f"No upstream is configured; a demo is used. Try it: ringback call demo count_primes --wait{_url_option(settings)}"
        )
        upstreams.append(parse_upstream_option(DEMO_UPSTREAM))
    return upstreams


def _url_option(settings: Settings) -> str:
    """The option with which a command finds this service; empty if the command's default does."""
    if settings.port == 0:
        return " --url URL, with the url that is logged below"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{settings.port}"
    return "" if url == URL_DEFAULT else f" --url {url}"
