"""The HTML of live lists, made once for all viewers that see the same rows."""

from collections.abc import Callable, Hashable
from typing import Any, Final
from weakref import WeakKeyDictionary

from ringback.services.live.lists import LiveContent

FRAMES_KEPT_MAX: Final = 20
"""Of one content: the links beside its rows differ by portal link, and by what a viewer writes into the address."""


class LiveFrames:
    """Keeps the frames of a content for as long as a list shows it, `FRAMES_KEPT_MAX` at most."""

    def __init__(self) -> None:
        self._frames: WeakKeyDictionary[LiveContent[Any], dict[Hashable, bytes]] = WeakKeyDictionary()

    def get_frame(self, content: LiveContent[Any], key: Hashable, render: Callable[[], bytes]) -> bytes:
        """The frame of this content for all viewers with this key. Above the limit, the oldest one is dropped."""
        frames = self._frames.setdefault(content, {})
        if (frame := frames.get(key)) is None:
            if len(frames) >= FRAMES_KEPT_MAX:
                del frames[next(iter(frames))]
            frame = frames[key] = render()
        return frame
