"""The service's errors that end a command with one message. Only commands that need the extra `server` import this."""

from typing import Final

from ringback.domain.errors import RingbackError
from ringback.settings import SettingsError
from ringback.upstreams.config import ConfigError

SERVICE_ERRORS: Final = (ConfigError, RingbackError, SettingsError)
