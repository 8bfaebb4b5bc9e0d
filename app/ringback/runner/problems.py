"""Why an upstream cannot be reached, in fixed words, and what to do about it: an upstream's own words could hold anything."""

from enum import StrEnum
from typing import Final, cast

from mcp import MCPError

from ringback.runner.failures import AuthorizationRequired, Lost, NoToken, NotSent, Unauthorised
from ringback.runner.transport import failure_of


class Problem(StrEnum):
    NOT_FOUND = "command_or_folder_not_found"
    NOT_STARTED = "command_cannot_be_started"
    CANNOT_CONNECT = "cannot_connect"
    LOST = "connection_lost"
    TIMEOUT = "no_answer_in_time"
    HANDSHAKE = "handshake_failed"
    AUTHORIZATION_REQUIRED = "authorization_required"
    UNAUTHORISED = "unauthorised"
    NO_TOKEN = "no_token"  # noqa: S105 - it says that there is none


ADVICE: Final = {
    Problem.NOT_FOUND: "Check 'command' and 'cwd', and that the service's PATH has the command.",
    Problem.NOT_STARTED: "Check that the service's user may run the command.",
    Problem.CANNOT_CONNECT: "Check the 'url', and that the server runs and can be reached from here.",
    Problem.LOST: "Run it by hand to see why it ends.",
    Problem.TIMEOUT: "Run it by hand to see what it waits for.",
    Problem.HANDSHAKE: "Check that the 'url' is that of an MCP endpoint (streamable HTTP), or the command an MCP server.",
    Problem.AUTHORIZATION_REQUIRED: (
        "It wants credentials. Nobody is here to log in by a browser, so configure an 'Authorization' header, or an OAuth "
        "client of its own: 'ringback': {'oauth': {'token_url', 'client_id', 'client_secret'}} (client_credentials)."
    ),
    Problem.UNAUTHORISED: "It, or its authorization server, refuses the configured credentials. Check them, and their scope.",
    Problem.NO_TOKEN: "Its authorization server gives no token. Check 'ringback.oauth.token_url', and that it can be reached.",
}

_PROBLEMS: Final[tuple[tuple[type[Exception], Problem], ...]] = (
    (TimeoutError, Problem.TIMEOUT),
    (FileNotFoundError, Problem.NOT_FOUND),
    (NotADirectoryError, Problem.NOT_FOUND),
    (OSError, Problem.NOT_STARTED),
    (AuthorizationRequired, Problem.AUTHORIZATION_REQUIRED),
    (Unauthorised, Problem.UNAUTHORISED),
    (NoToken, Problem.NO_TOKEN),
    (NotSent, Problem.CANNOT_CONNECT),
    (Lost, Problem.LOST),
)
"""The first that fits; anything else went wrong while negotiating."""


def problem_of(error: BaseException) -> Problem:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseException", error.exceptions[0])
    if isinstance(error, MCPError):
        error = failure_of(error.error)
    return next((problem for kind, problem in _PROBLEMS if isinstance(error, kind)), Problem.HANDSHAKE)
