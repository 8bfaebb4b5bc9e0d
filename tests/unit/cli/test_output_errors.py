"""Output that cannot be written, for example to a full disk, ends every command with one message."""

import errno
import io
import json
import sys
from collections.abc import Callable

import pytest

from ringback.__main__ import main
from ringback.cli.output import print_json
from ringback.cli.output_errors import EXIT_NOT_WRITTEN, exit_on_write_errors

pytestmark = pytest.mark.usefixtures("capsys")  # the standard output of the test run must not be discarded
MESSAGE = "Error: The output cannot be written: No space left on device.\n"


def full_disk() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


class FullOutput(io.StringIO):
    def write(self, _text: str) -> int:
        raise full_disk()


class FullOutputBehindBuffer(io.StringIO):
    def flush(self) -> None:
        if self.getvalue():
            raise full_disk()


@pytest.mark.parametrize("create_output", [FullOutput, FullOutputBehindBuffer])
@pytest.mark.parametrize("arguments", ["--version", "help", "calls --help", "help operations"])
def test_every_command_says_that_its_output_cannot_be_written(
    arguments: str,
    create_output: Callable[[], io.StringIO],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["ringback", *arguments.split()])
    monkeypatch.setattr(sys, "stdout", create_output())

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == EXIT_NOT_WRITTEN
    assert capsys.readouterr().err == MESSAGE


def test_output_that_waits_in_a_buffer_is_written_before_the_exit_code_is_chosen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", FullOutputBehindBuffer("waits"))

    with pytest.raises(SystemExit) as ended, exit_on_write_errors():
        raise SystemExit(0)

    assert ended.value.code == EXIT_NOT_WRITTEN
    assert capsys.readouterr().err == MESSAGE


def test_errors_of_several_tasks_are_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, exit_on_write_errors():
        raise ExceptionGroup("tasks", [full_disk(), ExceptionGroup("inner", [full_disk()])])

    assert ended.value.code == EXIT_NOT_WRITTEN
    assert capsys.readouterr().err == MESSAGE


def test_without_room_for_the_message_the_exit_code_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", FullOutput())

    with pytest.raises(SystemExit) as ended, exit_on_write_errors():
        raise full_disk()

    assert ended.value.code == EXIT_NOT_WRITTEN


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "a-file"),
        OSError(errno.ECONNRESET, "Connection reset by peer"),
        ExceptionGroup("tasks", [full_disk(), ValueError("a defect")]),
    ],
    ids=["of a file", "of a connection", "beside a defect"],
)
def test_other_errors_stay_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, exit_on_write_errors():
        raise error

    assert raised.value is error


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-8"])
def test_json_with_characters_that_the_output_lacks_is_written_and_stays_the_same_value(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe of Windows, or a locale with ISO 8859-1. A client may also get half of a surrogate pair."""
    value = {"client_session_id": "日本 härte 😀", "text": "cut off: \ud83d"}
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))

    with exit_on_write_errors():
        print_json(value)
    sys.stdout.flush()

    assert json.loads(written.getvalue().decode(encoding)) == value
