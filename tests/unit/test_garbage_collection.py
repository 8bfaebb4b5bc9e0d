"""Objects of the start are exempt from garbage collection; objects of requests are not."""

import gc
import weakref
from collections.abc import Generator

import pytest

from ringback.server import GARBAGE_THRESHOLD, exempt_startup_objects_from_garbage_collection


class Cycle:
    """An object that refers to itself, so only the garbage collector frees it."""

    def __init__(self) -> None:
        self.myself = self


@pytest.fixture(autouse=True)
def _collector_as_before() -> Generator[None]:  # pyright: ignore[reportUnusedFunction] - pytest calls it
    thresholds, was_enabled = gc.get_threshold(), gc.isenabled()
    yield
    # What is exempt stays so. Otherwise each later full collection of this process visits all 14,000 tests.
    gc.set_threshold(*thresholds)
    gc.enable() if was_enabled else gc.disable()


def test_a_collection_visits_nothing_that_exists_at_the_start() -> None:
    kept = Cycle()

    exempt_startup_objects_from_garbage_collection()

    assert not any(each is kept for each in gc.get_objects())
    assert gc.get_freeze_count() > 0


def test_cycles_that_are_garbage_at_the_start_are_freed_and_not_kept_for_ever() -> None:
    garbage = weakref.ref(Cycle())

    exempt_startup_objects_from_garbage_collection()

    assert garbage() is None


def test_the_collector_stays_on_and_frees_the_cycles_of_requests() -> None:
    gc.enable()
    exempt_startup_objects_from_garbage_collection()

    assert gc.isenabled()
    assert gc.get_threshold()[0] == GARBAGE_THRESHOLD
    gc.disable()  # so that only the collection below frees it
    later = weakref.ref(Cycle())
    assert later() is not None
    gc.collect(0)
    assert later() is None
