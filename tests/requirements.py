"""What Ringback must do, row by row, and how far it is.

A test shows a row by carrying `@pytest.mark.requirement("R12")`. `contract/test_requirements.py` holds the list and the tests
together: a row that is done or partial has a test, a deferred one has none, and no test names a row that is not here.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Done:
    pass


@dataclass(frozen=True, slots=True)
class Partial:
    missing: str


@dataclass(frozen=True, slots=True)
class Deferred:
    blocked_by: str


@dataclass(frozen=True, slots=True)
class Requirement:
    id: str
    sentence: str
    status: Done | Partial | Deferred


DONE: Final = Done()

REQUIREMENTS: Final = (
    # A client that does not block, and can come back
    Requirement("R01", "Requesting a tool call returns a handle at once and never blocks while the tool runs.", DONE),
    Requirement(
        "R02",
        "A join that times out gives nothing and leaves the handle joinable, unless it was said to be the last.",
        DONE,
    ),
    Requirement(
        "R03",
        "A join returns the last stored progress first, then live progress.",
        DONE,
    ),
    Requirement("R04", "Request state is a plug-in: memory, SQLite, Redis, or the user's own.", DONE),
    Requirement("R05", "A handle made in one process is joined in another, also after the first was killed.", DONE),
    Requirement("R06", "Cancelling through a handle is idempotent and says whether it came too late.", DONE),
    Requirement(
        "R07", "The ability to resume is advertised when a client connects, with how long a call stays resumable.", DONE
    ),
    Requirement("R08", "A handle is durable before it is returned, without waiting for a first progress.", DONE),
    Requirement(
        "R09",
        "Handles work on tasks, on the older tasks, and on resumable streams.",
        DONE,
    ),
    # The problem of asynchronous tools, point by point
    Requirement("R10", "An interactive client is answered within the inline window, whatever the tool does.", DONE),
    Requirement(
        "R11",
        "Calls to several servers run side by side: together they take as long as the longest.",
        DONE,
    ),
    Requirement("R12", "A job that outlives every timeout of its client still delivers its result.", DONE),
    Requirement(
        "R13",
        "After a disconnect the client learns the truth; a retry with the same key never runs the tool twice.",
        DONE,
    ),
    Requirement(
        "R14",
        "What ends within the window is answered with its result, what takes longer with where to find it.",
        DONE,
    ),
    Requirement("R15", "A pending resource can be read, polled and subscribed to, and becomes the result.", DONE),
    Requirement("R16", "No client has to poll: a callback reaches a client that is not connected.", DONE),
    Requirement(
        "R17",
        "A webhook can be registered for every kind of notification, an upstream's own included.",
        DONE,
    ),
    Requirement("R18", "A callback carries the client's correlation id and a token that resumes the work.", DONE),
    Requirement(
        "R19",
        "The client's session id comes back wherever its call is spoken of.",
        DONE,
    ),
    Requirement(
        "R20",
        "The same notification can be had in other ways than by webhook.",
        DONE,
    ),
    Requirement("R21", "The whole loop works: call, hang up, get rung back, correlate, resume, pull the result.", DONE),
    # The service
    Requirement(
        "R22",
        "Webhooks are registered, read, changed, tested, rotated, paused, replayed and removed over REST.",
        DONE,
    ),
    Requirement(
        "R23",
        "Callbacks are signed so that any off-the-shelf Standard Webhooks verifier accepts them.",
        DONE,
    ),
    Requirement(
        "R24",
        "Resume tokens are signed, narrow, expiring, revocable, rotatable, and never replace authentication.",
        DONE,
    ),
    Requirement("R25", "Everything has an owner; no principal sees or guesses what belongs to another.", DONE),
    Requirement(
        "R26",
        "A callback URL is judged when it is connected to, and proven before the first delivery where that is asked for.",
        DONE,
    ),
    Requirement(
        "R27",
        "Deliveries arrive at least once: retried by profile, dead-lettered, replayable, fair between endpoints.",
        DONE,
    ),
    Requirement(
        "R28",
        "MCP servers work behind Ringback as they are: stdio and streamable HTTP, old protocol and new.",
        DONE,
    ),
    Requirement("R29", "A task that exists upstream can be adopted, and a completion reported from outside.", DONE),
    Requirement("R30", "MCP clients are served tasks, of both protocol eras.", DONE),
    Requirement(
        "R31", "MCP clients are served events: list, subscribe, unsubscribe, poll and stream over one log.", DONE
    ),
    Requirement(
        "R32",
        "A question of the tool goes out by callback and may be answered hours later, at any endpoint.",
        DONE,
    ),
    Requirement("R33", "Outcomes are truthful, and what has expired says so.", DONE),
    Requirement(
        "R34",
        "SQLite with no service to start, or PostgreSQL for many nodes, with the same behaviour.",
        DONE,
    ),
    Requirement(
        "R35",
        "A process killed at any point loses nothing acknowledged and starts no unsafe tool twice.",
        DONE,
    ),
)
