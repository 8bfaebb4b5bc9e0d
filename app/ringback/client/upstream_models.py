"""Responses about upstreams and their tools, as frozen values."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import Field

from ringback.client.models import ClientModel


class LoginState(ClientModel):
    """Whether you are signed in to an upstream."""

    state: str
    """none (it has not asked for a login) | required | signed_in | expired | unreadable (at this node)"""
    owner: str | None = None
    """Whose login calls use: shared (one for all principals) | principal (yours); None if the upstream uses no logins."""
    scope: str | None = None
    expires_at: datetime | None = None
    """When the access token expires; it may be refreshed."""
    login_url: str | None = None
    """The page on which a person signs in. It contains no secret."""


class StartedLogin(ClientModel):
    """A login that was started. Send the user's browser to `authorization_url`."""

    login_id: str
    upstream: str
    owner: str
    authorization_url: str = Field(repr=False)
    """It contains a secret of this login: give it to the user only."""
    redirect_uri: str
    scope: str | None
    expires_at: datetime


class CompletedLogin(ClientModel):
    """A login that succeeded. Calls that waited for it go on."""

    upstream: str
    owner: str
    scope: str | None
    expires_at: datetime | None
    """When the access token expires; it may be refreshed. None: unknown."""


class Upstream(ClientModel):
    """An MCP server behind the service, and its state."""

    name: str
    configured_name: str = ""
    """The name in the configuration, if it is another one."""
    transport: str
    state: str
    """idle | connecting | ready | unresponsive | failing | skipped (its entry in the configuration cannot be served)"""
    state_since: datetime | None = None
    """By the clock of the node that answers."""
    protocol_version: str | None = None
    driver: str | None = None
    """How a new call is executed: task | mrtr | legacy_task | stream | plain; None while disconnected."""
    last_error: str | None = None
    advice: str | None = None
    """How to repair the last error; without one, an entry that a reload found invalid while the former one stays in use."""
    error_output: str | None = None
    """The exit code and the last lines of standard error of a command that did not start, if you are an operator."""
    intake: str = "open"
    """open | paused (calls stay queued) | draining (new calls are refused)"""
    login: LoginState = LoginState(state="none")
    calls_in_flight: int = 0
    """Calls that were sent to it and have not ended."""
    calls_waiting: int = 0
    """Calls whose turn has come and that are not sent yet: it cannot be reached, or answered HTTP 429, for example."""
    queued_calls: int = 0
    """Calls that wait in its queue: your own, or those of all principals if you are an operator; up to 10,000."""
    connections: int = 1
    """With credentials for each principal: your own, or those of all principals if you are an operator."""
    signed_in_owners: int | None = None
    """How many principals are signed in, if you are an operator."""
    max_concurrent: int = 0
    isolation: str = "shared"
    """Which calls share a session: shared (all) | principal | call"""
    checks_arguments: bool = True
    """Whether arguments that a tool's inputSchema refuses are refused before the call."""
    faults: Mapping[str, int] = Field(default_factory=dict[str, int])
    """How many invalid messages it has sent since the service started, by kind."""


class SkippedUpstream(ClientModel):
    """An entry of the configuration that is not served."""

    name: str
    configured_name: str = ""
    reason: str
    """A fixed word: the upstream's `last_error`."""
    advice: str
    """What is wrong with the entry, and what to do."""


class UpstreamIntake(ClientModel):
    """Which calls an upstream takes now."""

    name: str
    intake: str
    skipped: SkippedUpstream | None = None
    """Why no call of it runs, whatever its intake; None if it is served."""


class UpstreamRestart(ClientModel):
    """What the restart of an upstream has ended on the node that answered."""

    name: str
    connections: int
    """That were open."""
    calls: int
    """That ran on them."""


class Reloaded(ClientModel):
    """What a reload of the configuration changed: names of upstreams, sorted, and the entries that are not served."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: tuple[str, ...]
    skipped: tuple[SkippedUpstream, ...] = ()
    kept: tuple[SkippedUpstream, ...] = ()
    """Invalid entries of upstreams that go on with their former entries."""
    queued_calls: Mapping[str, int] = Field(default_factory=dict[str, int])
    """Calls in the queues of removed and skipped upstreams. They wait until their deadlines, unless the entry comes back."""
    quotas_changed: bool = False


class Tool(ClientModel):
    """A tool as its upstream lists it."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: Mapping[str, Any] = Field(default_factory=dict[str, Any], alias="inputSchema", repr=False)
    output_schema: Mapping[str, Any] | None = Field(default=None, alias="outputSchema", repr=False)


class UpstreamList(ClientModel):
    upstreams: tuple[Upstream, ...]


class ToolList(ClientModel):
    tools: tuple[Tool, ...]
