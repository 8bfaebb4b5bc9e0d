"""The user's own service as `ringback doctor` finds it: its settings, its upstreams, and where it runs."""

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from ringback.cli.client_options import URL_DEFAULT
from ringback.cli.embedded_service.own_service import find_own_service
from ringback.cli.installation_checks.database import Finding, fine
from ringback.settings import Settings
from ringback.upstreams.config import UpstreamEntry

_SETTINGS_OF_ANOTHER_SERVICE: Final = frozenset(
    {"auth", "config", "database_url", "host", "port", "public_url", "roles", "secret_keys"}
)
"""Who sets one of these runs a service with `ringback serve`; the own service ignores them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnInstallation:
    settings: Settings
    read_entries: Callable[[], Sequence[UpstreamEntry]]
    """Raises `ConfigError`."""
    api_key: str | None = field(repr=False)
    """None while it does not run."""

    @property
    def is_running(self) -> bool:
        return self.api_key is not None

    def describe(self) -> list[Finding]:
        """Which service is checked, and that it may rest."""
        checked = fine(
            "own service",
            f"checked is the service that your MCP clients share ({self.settings.config or 'without a configuration'}); "
            "for another one give --url, --config or --upstream",
        )
        if self.is_running:
            return [checked]
        return [checked, fine("service", "it does not run now; your MCP client starts it (ringback mcp)")]


def find_own_installation(settings: Settings) -> OwnInstallation | None:
    """The own service, if it is configured or runs, and the settings of the environment describe no other one."""
    if importlib.util.find_spec("fcntl") is None or settings.model_fields_set & _SETTINGS_OF_ANOTHER_SERVICE:
        return None
    from ringback.cli.embedded_service.paths import find_paths  # noqa: PLC0415 - needs fcntl
    from ringback.cli.embedded_service.runtime_file import read_kept_settings, read_running_service  # noqa: PLC0415 - needs fcntl
    from ringback.cli.embedded_service.service_environment import ServiceEnvironment  # noqa: PLC0415 - needs fcntl
    from ringback.cli.embedded_service.service_process import load_service_settings  # noqa: PLC0415 - needs fcntl

    paths = find_paths(os.environ)
    if not paths.config.exists() and find_own_service(URL_DEFAULT) is None:
        return None
    running = read_running_service(paths)
    port = read_kept_settings(paths).port if running is None else urlsplit(running.url).port or 0
    own = load_service_settings(paths, port=port)
    environment = ServiceEnvironment(paths, dict(os.environ))
    return OwnInstallation(
        settings=own,
        read_entries=partial(environment.read_entries, is_strict=own.strict_config),
        api_key=None if running is None else running.api_key,
    )
