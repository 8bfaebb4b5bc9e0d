"""What commands share that need the extra `server`: the option --database, and the errors that end them with one message."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

import typer

from ringback.cli.output import EXIT_NOT_DONE, TRY_AGAIN, exit_on_errors
from ringback.domain.errors import RingbackError, StoreUnavailable
from ringback.settings import SettingsError
from ringback.upstreams.config import ConfigError

Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        envvar="RINGBACK_DATABASE_URL",
        help="The service's database. A password belongs into RINGBACK_DATABASE_URL, because command lines are visible.",
    ),
]


@contextmanager
def exit_on_service_errors(*expected: type[Exception]) -> Generator[None]:
    """A decorator of commands: as `exit_on_errors`, also for errors of the settings, the configuration and the service."""
    with exit_on_errors(ConfigError, RingbackError, SettingsError, *expected, exit_code=_choose_exit_code):
        yield


def _choose_exit_code(error: Exception) -> int:
    """`TRY_AGAIN` if a repetition may succeed, as by a supervisor such as systemd; not if an operator has to act first."""
    is_passing = isinstance(error, StoreUnavailable | SettingsError) and not error.needs_operator
    return TRY_AGAIN if is_passing else EXIT_NOT_DONE
