"""Consent that needs no challenge: the operator's allowlist, and the list that an origin publishes of its receivers.

Both name prefixes of URLs. A prefix ends where a path segment ends, so `/hooks` covers `/hooks` and `/hooks/a`, and not
`/hooks-of-others`. A path that could mean another one to its server is covered by no prefix but `/`.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import unquote

from ringback.domain import jsontext
from ringback.domain.clock import Clock
from ringback.domain.delivery import Category
from ringback.domain.errors import InvalidCallbackUrl
from ringback.domain.principal import Principal
from ringback.notifier.look_ups import NO_PRINCIPAL
from ringback.notifier.sender import Asker
from ringback.notifier.target_guard import Target, TargetPolicy, parse_target

PUBLISHED_PATH: Final = "/.well-known/mcp-webhook-receiver.json"
"""Where an origin lists the path prefixes of its receivers: `{"receivers": ["/hooks/"]}` (mcp-events §8)."""
PUBLISHED_SECONDS: Final = 600.0
"""How long a list is believed, and the lack of one: a change is seen within ten minutes."""
PUBLISHED_KEPT_MAX: Final = 1_000
"""Origins whose list is remembered; each is at most 16 KiB, and mostly nothing."""
RECEIVERS_MAX: Final = 100
FETCH_SECONDS: Final = 5.0

_SEPARATORS: Final = re.compile(r"[/\\]")


def covers(prefix: str, path: str) -> bool:
    """Whether a request to `path`, which may have a query, lies within the path prefix."""
    path = path.partition("?")[0]
    if prefix == "/":
        return True
    within = path == prefix or path.startswith(prefix if prefix.endswith("/") else f"{prefix}/")
    return within and not _climbs(path)


def _climbs(path: str) -> bool:
    """Whether some server could read a step upwards in it: dots may be percent-encoded, and have parameters (`..;a=1`)."""
    segments = _SEPARATORS.split(unquote(unquote(path)))
    return any(segment.partition(";")[0] in {".", ".."} for segment in segments)


class Allowlist:
    """URLs that the operator vouches for (RINGBACK_CALLBACK_ALLOWLIST)."""

    def __init__(self, prefixes: Sequence[str], policy: TargetPolicy) -> None:
        """Raises `InvalidCallbackUrl` for a prefix that no callback could have."""
        self._prefixes = [parse_target(prefix, policy) for prefix in prefixes]
        for prefix in self._prefixes:
            if "?" in prefix.path or _climbs(prefix.path):
                raise InvalidCallbackUrl(f"{prefix.url}: a prefix has no query, and no dots for a segment.")

    def allows(self, target: Target) -> bool:
        return any(target.origin == prefix.origin and covers(prefix.path, target.path) for prefix in self._prefixes)


@dataclass(frozen=True, slots=True)
class _Published:
    receivers: tuple[str, ...]
    known_until: float


class PublishedReceivers:
    """The lists that origins publish, fetched by the way that callbacks take."""

    def __init__(self, asker: Asker, *, clock: Clock, policy: TargetPolicy) -> None:
        self._asker = asker
        self._clock = clock
        self._policy = policy
        self._known: OrderedDict[str, _Published] = OrderedDict()

    async def list_it(self, target: Target, principal: Principal = NO_PRINCIPAL) -> bool:
        """Whether its origin says that callbacks are wanted there; a look-up that this takes counts for `principal`."""
        now = self._clock.monotonic()
        published = self._known.get(target.origin)
        if published is None or published.known_until <= now:
            published = _Published(await self._fetch(target, principal), now + PUBLISHED_SECONDS)
            self._keep(target.origin, published)
        return any(covers(prefix, target.path) for prefix in published.receivers)

    async def _fetch(self, target: Target, principal: Principal) -> tuple[str, ...]:
        document = parse_target(target.origin + PUBLISHED_PATH, self._policy)
        answer, body = await self._asker.ask(
            "GET", document, {"accept": "application/json"}, b"", principal=principal, deadline_seconds=FETCH_SECONDS
        )
        return receivers_in(body) if answer.category is Category.DELIVERED else ()

    def _keep(self, origin: str, published: _Published) -> None:
        self._known[origin] = published
        self._known.move_to_end(origin)
        if len(self._known) > PUBLISHED_KEPT_MAX:
            self._known.popitem(last=False)


def receivers_in(document: bytes) -> tuple[str, ...]:
    """The path prefixes of a published list; none of a document that is no such list."""
    listed = object_in(document).get("receivers")
    if not isinstance(listed, list):
        return ()
    prefixes = cast("list[Any]", listed)[:RECEIVERS_MAX]
    return tuple(prefix for prefix in prefixes if isinstance(prefix, str) and prefix.startswith("/"))


def object_in(answer: bytes) -> Mapping[str, Any]:
    """The JSON object that somebody answered with; an empty one for everything else."""
    try:
        parsed: Any = jsontext.loads(answer)
    except ValueError:
        return {}
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
