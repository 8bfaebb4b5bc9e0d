"""What commands share that need the extra `server`: the option --database, and the errors that end them with one message."""

from typing import Annotated, Final

import typer

from ringback.cli.output import EXIT_NOT_DONE, TRY_AGAIN
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
SERVICE_ERRORS: Final = (ConfigError, RingbackError, SettingsError)


def exit_code_of_start(error: Exception) -> int:
    """`TRY_AGAIN` if a supervisor such as systemd should restart the service; not if an operator has to act first."""
    is_passing = isinstance(error, StoreUnavailable | SettingsError) and not error.needs_operator
    return TRY_AGAIN if is_passing else EXIT_NOT_DONE
