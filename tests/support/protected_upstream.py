"""A real MCP server behind a bearer check that the test switches, and a service that holds the tokens of its owners.

async with running_protected(tmp_path, stage.app()) as protected:
    …                                      # every request is refused with 401
    await protected.sign_in()              # as after a login: the check accepts the token, and waiting calls go on
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import SHARED_OWNER
from ringback.services.logins.login_waits import LoginWaits
from ringback.upstreams.config import UpstreamConfig
from tests.support.application import PUBLIC_URL, RunningApplication, running_application
from tests.support.limits import WAIT_SECONDS
from tests.support.logins import make_tokens, sign_in
from tests.support.upstreams import App, HttpServer, Receive, Scope, Send, make_http_config, serving

REFUSAL: Final = 'Bearer resource_metadata="http://127.0.0.1:9/metadata"'
LOGIN_URL: Final = f"{PUBLIC_URL}/login/stage"


class BearerCheck:
    """Accepts requests with one of these tokens, and refuses others as RFC 6750 says."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.accepted: set[str] = set()
        self.required_scope: str | None = None
        """If set, requests with an accepted token lack this scope: 403 insufficient_scope."""
        self.shown: list[str] = []
        """The tokens of the requests."""
        self.refused_count = 0
        self._refused = asyncio.Event()

    async def wait_until_refused(self, count: int) -> None:
        """Wait until so many requests were refused."""
        async with asyncio.timeout(WAIT_SECONDS):
            while self.refused_count < count:
                self._refused.clear()
                await self._refused.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        token = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
        self.shown.append(token)
        if token not in self.accepted:
            await self._refuse(send, 401, f'{REFUSAL}, error="invalid_token"' if token else REFUSAL)
        elif self.required_scope is not None:
            await self._refuse(send, 403, f'{REFUSAL}, error="insufficient_scope", scope="{self.required_scope}"')
        else:
            await self._app(scope, receive, send)

    async def _refuse(self, send: Send, status: int, challenge: str) -> None:
        self.refused_count += 1
        self._refused.set()
        headers = [(b"www-authenticate", challenge.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


@dataclass(slots=True)
class ProtectedService:
    ringback: RunningApplication
    check: BearerCheck
    server: HttpServer
    _numbers: list[int] = field(default_factory=list[int])

    @property
    def login_waits(self) -> LoginWaits:
        answers = self.ringback.app.services.input_answers
        return LoginWaits(recorder=answers.recorder, public_url=PUBLIC_URL)

    async def sign_in(self, owner: Principal = SHARED_OWNER, *, is_accepted: bool = True, **over: Any) -> str:
        """Store tokens as a completed login does; the check accepts the token unless the test says otherwise."""
        self._numbers.append(1)
        token = f"token-{len(self._numbers)}-of-{owner}"
        if is_accepted:
            self.check.accepted = {token}
        tokens = make_tokens(upstream="stage", owner=owner, resource=self.server.url, access_token=token, **over)
        await sign_in(self.ringback.app.services.input_answers.store, self.login_waits, tokens)
        return token


@asynccontextmanager
async def running_protected(
    folder: Path, app: App, *, config: dict[str, Any] | None = None, **settings: Any
) -> AsyncGenerator[ProtectedService]:
    """A service whose upstream `stage` accepts no token yet. `config` are further fields of the upstream's configuration."""
    check = BearerCheck(app)
    async with serving(check) as server:
        upstream: UpstreamConfig = replace(make_http_config(server.url, name="stage"), **(config or {}))
        async with running_application(folder, upstream, **settings) as ringback:
            yield ProtectedService(ringback, check, server)
