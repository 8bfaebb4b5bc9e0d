"""How long the HTML of a live list is kept, and how much of it."""

from ringback.services.live.lists import LiveContent
from ringback.ui.live_frames import FRAME_SECONDS_MAX, FRAMES_KEPT_MAX, LiveFrames
from tests.support.clock import FakeClock

ROWS = LiveContent(shown="rows")


class Page:
    """Counts how often it is rendered."""

    def __init__(self) -> None:
        self.renders = 0

    def render(self) -> bytes:
        self.renders += 1
        return b"rows"


def test_viewers_of_the_same_page_share_its_html_and_other_pages_have_their_own() -> None:
    frames, page = LiveFrames(FakeClock()), Page()

    for key in ("all", "all", "dead"):
        frames.get_frame(ROWS, key, page.render)
    frames.get_frame(LiveContent(shown="rows"), "all", page.render)

    assert page.renders == 3


def test_a_viewer_that_comes_later_gets_html_of_its_own_time() -> None:
    """The rows say which attempts are due, and draw open calls until now."""
    clock, page = FakeClock(), Page()
    frames = LiveFrames(clock)

    frames.get_frame(ROWS, "all", page.render)
    clock.advance(FRAME_SECONDS_MAX)
    for _ in range(2):
        frames.get_frame(ROWS, "all", page.render)

    assert page.renders == 2


def test_the_html_of_one_content_is_kept_for_a_bounded_number_of_addresses() -> None:
    """A viewer that is no operator may write any name of a principal into the address, which selects nothing."""
    frames, page = LiveFrames(FakeClock()), Page()

    for number in range(FRAMES_KEPT_MAX + 1):
        frames.get_frame(ROWS, f"principal={number}", page.render)
    before = page.renders
    frames.get_frame(ROWS, f"principal={FRAMES_KEPT_MAX}", page.render)
    frames.get_frame(ROWS, "principal=0", page.render)

    assert (before, page.renders) == (FRAMES_KEPT_MAX + 1, FRAMES_KEPT_MAX + 2)
