"""Fixed names and advice for failed connections. Texts of the upstream are not shown, because they could contain anything."""

from enum import StrEnum
from typing import Final, cast

from mcp import MCPError

from ringback.domain.upstreams import LOGIN_REQUIRED_PROBLEM, TOKENS_UNREADABLE_PROBLEM
from ringback.protocol.errors import (
    CredentialsRejected,
    CredentialsRequired,
    LoginRequired,
    RequestNotSent,
    ResponseLost,
    TlsFailed,
    TokensUnreadable,
    TokenUnavailable,
    UpstreamUnavailable,
)
from ringback.protocol.transport_errors import to_request_error
from ringback.protocol.upstream_logins import login_command
from ringback.upstreams.instances import LeadsBackHere


class ConnectionProblem(StrEnum):
    NOT_FOUND = "command_or_folder_not_found"
    NOT_STARTED = "command_cannot_be_started"
    CANNOT_CONNECT = "cannot_connect"
    TLS = "tls_failed"
    LOST = "connection_lost"
    TIMEOUT = "no_answer_in_time"
    HANDSHAKE = "handshake_failed"
    AUTHORIZATION_REQUIRED = "authorization_required"
    LOGIN_REQUIRED = LOGIN_REQUIRED_PROBLEM
    TOKENS_UNREADABLE = TOKENS_UNREADABLE_PROBLEM
    UNAUTHORISED = "unauthorised"
    LEADS_BACK = "ringback_itself"
    NO_TOKEN = "no_token"  # noqa: S105 - the name of a problem
    UNRESPONSIVE = "unresponsive"
    """It is connected, and does not respond."""


_PROBLEM_ADVICE: Final = {
    ConnectionProblem.NOT_FOUND: "Check 'command' and 'cwd', and that the service's PATH has the command.",
    ConnectionProblem.NOT_STARTED: "Check that the service's user may run the command.",
    ConnectionProblem.CANNOT_CONNECT: "Check the 'url', and that the server runs and can be reached from here.",
    ConnectionProblem.TLS: (
        "Its certificate is not accepted, or it speaks no TLS. Check that the 'url' has the right scheme (http:// or https://) "
        "and the name in the certificate, and that the certificate is valid. If a private authority signed it, name that "
        "authority's PEM file in RINGBACK_CA_FILE, and restart the service."
    ),
    ConnectionProblem.LOST: (
        "A command: run it by hand, or see its log, to see why it ends. RINGBACK_LOG_LEVELS=upstreams=debug logs what a "
        "command writes to standard error (upstream.stderr). A 'url': check its scheme (http:// or https://), and see the log "
        "of its server."
    ),
    ConnectionProblem.TIMEOUT: (
        "Check the 'url' and see the log of its server, or run its command by hand, to see why it does not respond."
    ),
    ConnectionProblem.HANDSHAKE: (
        "Check that the 'url' is that of an MCP endpoint (streamable HTTP), or the command an MCP server."
    ),
    ConnectionProblem.AUTHORIZATION_REQUIRED: (
        "It requires credentials and offers no login, so configure an 'Authorization' header, or an OAuth client: "
        "'ringback': {'oauth': {'token_url', 'client_id', 'client_secret'}} (client_credentials)."
    ),
    ConnectionProblem.LOGIN_REQUIRED: f"It requires a login with a browser: {login_command('{upstream}')}.",
    ConnectionProblem.TOKENS_UNREADABLE: (
        "There is a login to it, whose tokens are sealed with a key that this node lacks, so it needs no sign-in: add "
        "the key to RINGBACK_SECRET_KEYS at this node, and restart it. Until then, nodes that have the key run the calls."
    ),
    ConnectionProblem.UNAUTHORISED: (
        "It, or its authorization server, refuses the configured credentials. Check them and their scope."
    ),
    ConnectionProblem.LEADS_BACK: (
        "It leads back to this Ringback, directly or through others, so its tools would be listed in a circle. Remove it."
    ),
    ConnectionProblem.NO_TOKEN: (
        "Its authorization server returns no token. Check that it can be reached from here, and 'ringback.oauth.token_url' if "
        "the entry has one."
    ),
    ConnectionProblem.UNRESPONSIVE: (
        "It has sent nothing for a while, and calls of it still have time. See them: ringback calls list --upstream "
        "{upstream} --status working (an operator: --all-principals). Cancel those that keep it busy, or end all of them on "
        "this node: ringback upstreams restart {upstream}"
    ),
}

_PROBLEM_BY_ERROR: Final[tuple[tuple[type[Exception], ConnectionProblem], ...]] = (
    (LeadsBackHere, ConnectionProblem.LEADS_BACK),
    (TimeoutError, ConnectionProblem.TIMEOUT),
    (FileNotFoundError, ConnectionProblem.NOT_FOUND),
    (NotADirectoryError, ConnectionProblem.NOT_FOUND),
    (OSError, ConnectionProblem.NOT_STARTED),
    (TokensUnreadable, ConnectionProblem.TOKENS_UNREADABLE),
    (LoginRequired, ConnectionProblem.LOGIN_REQUIRED),
    (CredentialsRequired, ConnectionProblem.AUTHORIZATION_REQUIRED),
    (CredentialsRejected, ConnectionProblem.UNAUTHORISED),
    (TokenUnavailable, ConnectionProblem.NO_TOKEN),
    (TlsFailed, ConnectionProblem.TLS),
    (RequestNotSent, ConnectionProblem.CANNOT_CONNECT),
    (ResponseLost, ConnectionProblem.LOST),
    (UpstreamUnavailable, ConnectionProblem.CANNOT_CONNECT),
)
"""The first matching class decides; every other error is a failed handshake."""


def get_advice(problem: ConnectionProblem, upstream: str) -> str:
    """What to do about the problem of this upstream."""
    return _PROBLEM_ADVICE[problem].replace("{upstream}", upstream)


def classify_problem(error: BaseException) -> ConnectionProblem:
    cause = find_cause(error)
    return next(
        (problem for kind, problem in _PROBLEM_BY_ERROR if isinstance(cause, kind)), ConnectionProblem.HANDSHAKE
    )


def find_cause(error: BaseException) -> BaseException:
    """The first error of a group, and an error of the SDK as an error of `protocol.errors`."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseException", error.exceptions[0])
    return to_request_error(error.error) if isinstance(error, MCPError) else error
