"""Why a connection fails, in fixed words, and what to do about it."""

import pytest

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
from ringback.upstreams.connection_problems import ConnectionProblem, classify_problem, get_advice


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (FileNotFoundError(), "command_or_folder_not_found"),
        (PermissionError(), "command_cannot_be_started"),
        (TimeoutError(), "no_answer_in_time"),
        (ExceptionGroup("", [ExceptionGroup("", [RequestNotSent()])]), "cannot_connect"),
        (TlsFailed(), "tls_failed"),
        (ResponseLost(), "connection_lost"),
        (UpstreamUnavailable("503"), "cannot_connect"),
        (CredentialsRequired(), "authorization_required"),
        (CredentialsRejected(), "unauthorised"),
        (TokenUnavailable(), "no_token"),
        (LoginRequired("sign in"), "login_required"),
        (TokensUnreadable("no key"), "tokens_unreadable"),
        (ValueError("their words"), "handshake_failed"),
    ],
)
def test_a_problem_has_a_fixed_text(error: Exception, problem: str) -> None:
    assert classify_problem(error) == problem


def test_there_is_advice_for_every_problem() -> None:
    assert all(get_advice(problem, "hosted") for problem in ConnectionProblem)
    assert "ringback upstreams login hosted" in get_advice(ConnectionProblem.LOGIN_REQUIRED, "hosted")
