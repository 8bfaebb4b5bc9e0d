"""What a driver is: it carries one call over a session to its end, and says truthfully how it ended."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from mcp.shared.dispatcher import ProgressFnT

from ringback.domain.call import Call, Ending, Progress

OnProgress = Callable[[Progress], Awaitable[None]]


class Session(Protocol):
    """What drivers need of a connection."""

    async def request(
        self, method: str, params: Mapping[str, Any], *, on_progress: ProgressFnT | None = None
    ) -> dict[str, Any]:
        """The raw result; raises `RequestFailed`. Cancelling it tells the upstream to stop."""
        ...


class Driver(Protocol):
    async def run(self, call: Call, session: Session, *, on_progress: OnProgress) -> Ending: ...


class CallSession(Protocol):
    """A live session with the driver that suits it: what the runner needs for one call."""

    async def drive(self, call: Call, *, on_progress: OnProgress) -> Ending: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DrivenSession:
    session: Session
    driver: Driver

    async def drive(self, call: Call, *, on_progress: OnProgress) -> Ending:
        return await self.driver.run(call, self.session, on_progress=on_progress)
