"""When the user's own service reads its files again."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ringback.cli.embedded_service.file_watch import LOOK_SECONDS, FileWatch
from tests.support.clock import FakeClock


class ScriptOver(Exception):
    """Every step was done, and the watch waits on."""


class ScriptedClock(FakeClock):
    """Does one step of the test before each look."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__()
        self._steps = iter(steps)

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        step = next(self._steps, None)
        if step is None:
            raise ScriptOver
        step()


def nothing() -> None:
    """A look without a change."""


async def count_looks(files: tuple[Path, ...], *steps: Callable[[], object]) -> int:
    """The looks until the watch reports a change."""
    clock = ScriptedClock(*steps)
    await FileWatch(files, clock=clock).wait_for_change()
    return round(clock.monotonic() / LOOK_SECONDS)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    return path


async def test_a_change_is_reported_when_the_file_stays_the_same_for_one_look(file: Path) -> None:
    def write() -> None:
        file.write_text(file.read_text() + " ")

    assert await count_looks((file,), nothing, write, write, nothing) == 4


@pytest.mark.parametrize("other", ["made", "replaced", "removed"])
async def test_a_file_that_is_made_replaced_or_removed_has_changed(file: Path, other: str) -> None:
    def make() -> None:
        (file.parent / "environment").write_text("A=b")

    def replace() -> None:
        status = file.stat()
        new = file.with_name("new")
        new.write_text("[]")
        os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
        new.replace(file)

    step = {"made": make, "replaced": replace, "removed": file.unlink}[other]
    assert await count_looks((file, file.parent / "environment"), step, nothing) == 2


async def test_a_file_that_stays_or_is_put_back_is_not_reported(file: Path) -> None:
    away = file.with_name("away")
    steps = (nothing, lambda: file.rename(away), lambda: away.rename(file), nothing)

    with pytest.raises(ScriptOver):
        await count_looks((file,), *steps)


async def test_a_change_is_reported_once(file: Path) -> None:
    watch = FileWatch((file,), clock=ScriptedClock(lambda: file.write_text("[ ]"), nothing, nothing, nothing))
    await watch.wait_for_change()

    with pytest.raises(ScriptOver):
        await watch.wait_for_change()
