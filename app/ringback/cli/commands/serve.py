"""`ringback serve`: runs the service."""

from collections.abc import Sequence
from functools import partial
from ipaddress import ip_network
from typing import Annotated, Any, Final

import typer

from ringback import server
from ringback.cli.configured_upstreams import ConfigFile, UpstreamOption, load_configured_upstreams
from ringback.cli.output import print_message
from ringback.cli.server_options import Database, exit_on_service_errors
from ringback.domain.upstreams import SkippedUpstream
from ringback.settings import Settings, find_misspelt_variables, load_settings
from ringback.upstreams.config import UpstreamEntry

LOOPBACK_NETWORKS: Final = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
SKIPPED_SHOWN_MAX: Final = 10
"""Names on the one line at the start."""


@exit_on_service_errors()
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
    database: Database = None,
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
    strict_config: Annotated[
        bool,
        typer.Option(
            "--strict-config",
            help="Refuse a configuration with an entry that cannot be served, or whose name has to be changed.",
        ),
    ] = False,
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
        "strict_config": strict_config or None,
        "log_level": log_level,
        "log_format": log_format,
    }
    settings = load_development_settings(options) if dev else load_settings(**options)
    reread = partial(load_configured_upstreams, settings, upstream or [], dev=dev)
    entries = reread()
    _report_skipped(entries)
    _report_misspelt_variables()
    server.serve(settings, entries, read_configs=reread)


def load_development_settings(options: dict[str, Any]) -> Settings:
    """The settings without authentication and with callbacks to this machine."""
    ranges = load_settings(**options, auth="off").callback_private_cidrs
    return load_settings(
        **options, auth="off", callback_http=True, callback_private_cidrs=(*ranges, *LOOPBACK_NETWORKS)
    )


def _report_misspelt_variables() -> None:
    for name, setting in find_misspelt_variables().items():
        print_message(f"{name} is no setting and was ignored. Did you mean {setting}?")


def _report_skipped(entries: Sequence[UpstreamEntry]) -> None:
    """Print one line; the log has one for each entry."""
    if skipped := [each.configured_name for each in entries if isinstance(each, SkippedUpstream)]:
        shown = ", ".join(skipped[:SKIPPED_SHOWN_MAX]) + (", …" if len(skipped) > SKIPPED_SHOWN_MAX else "")
        print_message(
            f"Skipped entries of the configuration: {shown}. The others are served. The log below says why; so does: "
            "ringback upstreams"
        )
