"""The service's errors that end a command with one message. Only commands that need the extra `server` import this."""

from typing import Final

from ringback.cli.output import EXIT_NOT_DONE, TRY_AGAIN
from ringback.domain.errors import RingbackError, StoreUnavailable
from ringback.settings import SettingsError
from ringback.upstreams.config import ConfigError

SERVICE_ERRORS: Final = (ConfigError, RingbackError, SettingsError)


def exit_code_of_start(error: Exception) -> int:
    """`TRY_AGAIN` if a supervisor such as systemd should restart the service; not if an operator has to act first."""
    is_passing = isinstance(error, StoreUnavailable | SettingsError) and not error.needs_operator
    return TRY_AGAIN if is_passing else EXIT_NOT_DONE
