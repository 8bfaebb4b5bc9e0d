"""Requests and responses about logins to upstreams."""

from typing import Annotated, Self

from pydantic import Field, SecretStr

from ringback.domain.login_urls import REDIRECT_URI_LENGTH_MAX
from ringback.domain.upstream_logins import SCOPE_LENGTH_MAX, CredentialsScope
from ringback.schemas.fields import SCOPE_PATTERN, Instant, RequestBody, ResponseBody
from ringback.services.logins.login_completion import CompletedLogin
from ringback.services.logins.login_redirects import REDIRECTED_TO_LENGTH_MAX
from ringback.services.logins.login_states import LoginState, LoginStatus
from ringback.services.logins.upstream_logins import StartedLogin

_OWNER = "Whose login calls use: shared (one for all principals) or principal (yours)"


class StartLoginBody(RequestBody):
    redirect_uri: Annotated[str, Field(min_length=1, max_length=REDIRECT_URI_LENGTH_MAX)] | None = Field(
        default=None,
        description="Where the authorization server sends the browser: http://127.0.0.1:PORT/PATH, or a URL that the operator "
        "lists in RINGBACK_LOGIN_REDIRECT_URLS. Default: Ringback's own page, which shows the URL to paste.",
    )
    scope: Annotated[str, Field(min_length=1, max_length=SCOPE_LENGTH_MAX, pattern=SCOPE_PATTERN)] | None = Field(
        default=None,
        description="The scopes to ask for, separated by spaces. Default: what the upstream asked for last, or names itself.",
    )


class CompleteLoginBody(RequestBody):
    redirected_to: Annotated[SecretStr, Field(min_length=1, max_length=REDIRECTED_TO_LENGTH_MAX)] = Field(
        description="The whole URL to which the authorization server sent the browser, with its query."
    )


class StartedLoginView(ResponseBody):
    """A login that was started. Send the user's browser to `authorization_url`."""

    login_id: str
    upstream: str
    owner: CredentialsScope = Field(description=_OWNER)
    authorization_url: str = Field(description="It contains a secret of this login: give it to the user only.")
    redirect_uri: str
    scope: str | None
    expires_at: Instant = Field(description="Until then the login can be completed, once.")

    @classmethod
    def from_started(cls, started: StartedLogin) -> Self:
        login = started.login
        return cls(
            login_id=login.id,
            upstream=login.upstream,
            owner=started.owner,
            authorization_url=started.authorization_url,
            redirect_uri=login.request.redirect_uri,
            scope=login.request.scope,
            expires_at=login.expires_at,
        )


class CompletedLoginView(ResponseBody):
    """A login that succeeded. Calls that waited for it go on."""

    upstream: str
    owner: CredentialsScope = Field(description=_OWNER)
    scope: str | None
    expires_at: Instant | None = Field(description="When the access token expires; it may be refreshed. Null: unknown.")

    @classmethod
    def from_completed(cls, completed: CompletedLogin) -> Self:
        return cls.model_validate(completed)


class LoginStateView(ResponseBody):
    """Whether you are signed in to an upstream."""

    state: LoginStatus = Field(
        description="none: it has not asked for a login; required; signed_in; expired: the tokens work no more; "
        "unreadable: this node lacks the key of the tokens, which other nodes may have"
    )
    owner: CredentialsScope | None = Field(description=f"{_OWNER}; null if the upstream uses no logins")
    scope: str | None
    expires_at: Instant | None = Field(description="When the access token expires; it may be refreshed")
    login_url: str | None = Field(description="The page on which a person signs in. It contains no secret.")

    @classmethod
    def from_state(cls, state: LoginState) -> Self:
        return cls.model_validate(state)
