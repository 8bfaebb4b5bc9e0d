"""The HTML of live lists, made once for all viewers that see the same rows."""

from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from ringback.domain.clock import Clock
from ringback.services.live.lists import LiveContent

FRAMES_KEPT_MAX: Final = 20
"""Of one content: the links beside its rows differ by portal link, and by what a viewer writes into the address."""

FRAME_SECONDS_MAX: Final = 10.0
"""Some rows say what the time makes of them, such as an attempt that is due. All viewers of a change get it within seconds; one
that comes later gets a frame of its own time."""


class _Frame(NamedTuple):
    rendered_at: float
    html: bytes


class LiveFrames:
    """Keeps the frames of a content while a list shows it: for `FRAME_SECONDS_MAX`, and `FRAMES_KEPT_MAX` at most."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._frames: WeakKeyDictionary[LiveContent[Any], dict[Hashable, _Frame]] = WeakKeyDictionary()

    def get_frame(self, content: LiveContent[Any], key: Hashable, render: Callable[[], bytes]) -> bytes:
        """The frame of this content for all viewers with this key. Above the limit, the one used longest ago is dropped."""
        frames, now = self._frames.setdefault(content, {}), self._clock.monotonic()
        frame = frames.pop(key, None)
        if frame is None or now - frame.rendered_at >= FRAME_SECONDS_MAX:
            frame = _Frame(now, render())
        if len(frames) >= FRAMES_KEPT_MAX:
            del frames[next(iter(frames))]
        frames[key] = frame
        return frame.html
