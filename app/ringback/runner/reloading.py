"""Reading the configuration of the upstreams again, while the service runs."""

import logging
from collections.abc import Callable, Iterable

from ringback.domain.errors import InvalidConfiguration
from ringback.domain.upstreams import Reloaded
from ringback.runner.config import ConfigError, UpstreamConfig
from ringback.runner.upstreams import UpstreamRegistry

log = logging.getLogger(__name__)


class UpstreamReloader:
    """Implements `domain.upstreams.Configured`."""

    def __init__(self, upstreams: UpstreamRegistry, *, load_configs: Callable[[], Iterable[UpstreamConfig]]) -> None:
        """`read` raises `ConfigError`. It reads a local file of a few kilobytes, so nobody waits for it."""
        self._upstreams = upstreams
        self._read = load_configs

    def reload_configuration(self) -> Reloaded:
        try:
            reloaded = self._upstreams.reconfigure(self._read())
        except ConfigError as problem:
            log.error("upstreams.not_reloaded", extra={"problem": str(problem)})  # noqa: TRY400 - the message says all
            raise InvalidConfiguration(f"Nothing was changed. {problem}") from None
        changed_names = {"added": reloaded.added, "changed": reloaded.changed, "removed": reloaded.removed}
        log.info("upstreams.reloaded", extra={name: ",".join(names) or "none" for name, names in changed_names.items()})
        return reloaded
