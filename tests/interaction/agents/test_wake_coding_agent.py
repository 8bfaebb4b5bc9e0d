"""scripts/examples/wake_coding_agent.py with a CLI that records its words, and a real service."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from ringback.agents import CallState, CallStateKind
from scripts.examples.wake_coding_agent import CannotWake, check_id, read_callback, write_prompt
from tests.support.api_server import serving_api
from tests.support.forked_commands import running_forked_script
from tests.support.limits import WAIT_SECONDS
from tests.support.service import CALL_BODY, RETENTION_SECONDS, ServiceUnderTest, running_service

SCRIPT: Final = Path(__file__).resolve().parents[3] / "scripts/examples/wake_coding_agent.py"
SESSION: Final = "0199b2f4-7c1d-7a3e-9d55-3f6f2f0c9a11"
CLI: Final = f"""#!{sys.executable}
import json, os, sys
with open(os.environ["CLI_RUNS"], "a") as runs:
    runs.write(json.dumps({{"words": sys.argv[1:], "stdin": sys.stdin.read()}}) + "\\n")
sys.exit(int(os.environ.get("CLI_EXITS", "0")))
"""


@dataclass(slots=True, kw_only=True)
class Desk:
    """A machine with a coding agent, and the service that its sessions' calls are on."""

    service: ServiceUnderTest
    url: str
    api_key: str
    folder: Path

    async def start_call(self, **members: Any) -> str:
        client = await self.service.create_anonymous_client(headers={"Authorization": f"Bearer {self.api_key}"})
        body = CALL_BODY | {"client_session_id": SESSION, "accepts_input": True} | members
        return str((await client.post("/v1/calls", json=body)).json()["call"]["id"])

    async def wake(
        self, body: Mapping[str, Any], *command: str, session: str | None = None, **environment: str
    ) -> tuple[int | None, str]:
        """Run the script with this callback; its exit code, and what it said."""
        words = command or (str(self.folder / "claude"), "--resume", "{session}", "-p", "{prompt}")
        options = ["--seen", str(self.folder / "seen"), *(["--session", session] if session else [])]
        variables = {"RINGBACK_URL": self.url, "RINGBACK_API_KEY": self.api_key, "CLI_RUNS": str(self.runs_file)}
        async with (
            running_forked_script(
                *(SCRIPT, *options, "--", *words),
                folder=self.folder,
                environment=os.environ | variables | environment,
            ) as process,
            asyncio.timeout(WAIT_SECONDS),
        ):
            _, said = await process.communicate(json.dumps(body).encode())
            return process.returncode, said.decode()

    @property
    def runs_file(self) -> Path:
        return self.folder / "runs.jsonl"

    def runs(self) -> list[dict[str, Any]]:
        """What the CLI was run with."""
        lines = self.runs_file.read_text(encoding="utf-8").splitlines() if self.runs_file.exists() else []
        return [json.loads(line) for line in lines]


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncGenerator[Desk]:
    cli = tmp_path / "claude"
    cli.write_text(CLI, encoding="utf-8")
    cli.chmod(0o755)
    async with (
        running_service(tmp_path, allowed_hosts=["127.0.0.1"]) as service,
        serving_api(service.app) as url,
    ):
        yield Desk(service=service, url=url, api_key=await service.create_api_key("alice"), folder=tmp_path)


def callback_of(call_id: str, name: str = "call.finished", **data: Any) -> dict[str, Any]:
    """A callback, as `ringback listen --exec` gives it to its command."""
    data = {"call_id": call_id, "status": "completed", "client_session_id": SESSION} | data
    timestamp = "2026-11-20T17:00:00.000Z"
    return {"eventId": f"evt_{call_id[5:]}", "name": name, "timestamp": timestamp, "cursor": "c", "data": data}


async def test_an_ended_call_resumes_its_session_once_with_the_result(desk: Desk) -> None:
    call_id = await desk.start_call()
    await desk.service.finish_call(call_id)

    first = await desk.wake(callback_of(call_id))
    repeated = await desk.wake(callback_of(call_id))

    assert (first, repeated) == ((0, ""), (0, ""))
    [run] = desk.runs()
    resume, session, print_only, prompt = run["words"]
    assert (resume, session, print_only) == ("--resume", SESSION, "-p")
    assert call_id in prompt
    assert '"text": "done"' in prompt
    assert run["stdin"] == ""


async def test_a_refused_callback_runs_nothing_and_says_why(desk: Desk) -> None:
    code, said = await desk.wake(callback_of("call_1", client_session_id="--help"))

    assert code == os.EX_DATAERR
    assert said.startswith("wake_coding_agent: The session's id '--help' cannot be used")
    assert desk.runs() == []


async def test_a_callback_that_names_another_session_than_its_calls_runs_nothing(desk: Desk) -> None:
    call_id = await desk.start_call(client_session_id="another-session")
    await desk.service.finish_call(call_id)

    code, said = await desk.wake(callback_of(call_id))

    assert (code, desk.runs()) == (os.EX_DATAERR, [])
    assert "belongs to another session" in said


async def test_the_callback_of_an_expired_call_resumes_its_session_with_that(desk: Desk) -> None:
    """A laptop that slept for two weeks: the event is kept longer than the result."""
    call_id = await desk.start_call()
    await desk.service.finish_call(call_id)
    desk.service.clock.advance(RETENTION_SECONDS + 1)
    await desk.service.run_janitor()

    assert await desk.wake(callback_of(call_id)) == (0, "")

    prompt = desk.runs()[0]["words"][3]
    assert f"The tool call {call_id} has failed." in prompt
    assert "its result has expired" in prompt


async def test_a_command_that_fails_runs_again_when_the_callback_comes_again(desk: Desk) -> None:
    call_id = await desk.start_call()
    await desk.service.finish_call(call_id)

    failed, _ = await desk.wake(callback_of(call_id), CLI_EXITS="7")
    again, _ = await desk.wake(callback_of(call_id))

    assert (failed, again) == (7, 0)
    assert len(desk.runs()) == 2


def test_a_tool_error_is_shown_as_an_error() -> None:
    state = CallState(kind=CallStateKind.TOOL_ERROR, call_id="call_1", tool="git_log", text="no such repository")

    prompt = write_prompt(state)

    assert "has failed" in prompt
    assert "no such repository" in prompt


async def test_a_tools_questions_are_shown_to_the_agent_that_asks_its_user(desk: Desk) -> None:
    call_id = await desk.start_call()
    await desk.service.request_input(call_id, "branch")

    assert await desk.wake(callback_of(call_id, "call.input_required", status="input_required")) == (0, "")

    prompt = desk.runs()[0]["words"][3]
    assert "ringback_answer_call" in prompt
    assert "branch?" in prompt


@pytest.mark.parametrize("session", [None, "", "--dangerously-skip-permissions", "../../etc", "a b", "x" * 300])
def test_a_session_that_would_be_an_option_of_the_command_or_a_path_is_refused(session: str | None) -> None:
    with pytest.raises(CannotWake, match="cannot be used"):
        check_id(session, "The session's id")


@pytest.mark.parametrize("body", [b"", b"[]", b"not JSON", b'{"type": "gap", "cursor": "c"}', b"{}", b"\xff"])
def test_what_is_not_a_callback_of_a_call_is_refused(body: bytes) -> None:
    with pytest.raises(CannotWake, match=r"^(Standard input is not a callback|This callback is not about a call)"):
        read_callback(body)


def test_a_large_result_is_cut_so_that_a_command_can_have_it() -> None:
    state = CallState(
        kind=CallStateKind.RESULT, call_id="call_1", tool="read", result={"content": [{"text": "\U0001f514" * 100_000}]}
    )

    prompt = write_prompt(state)

    assert len(prompt.encode()) < 128 * 1024
    assert "ringback_get_call returns all of it" in prompt


async def test_a_session_whose_id_the_cli_chose_is_given_to_the_script(desk: Desk) -> None:
    call_id = await desk.start_call(client_session_id="nightly")
    await desk.service.finish_call(call_id)
    command = (str(desk.folder / "claude"), "exec", "resume", "{session}", "{prompt}")

    code, _ = await desk.wake(callback_of(call_id, client_session_id="nightly"), *command, session=SESSION)

    assert code == 0
    assert desk.runs()[0]["words"][:3] == ["exec", "resume", SESSION]


async def test_a_service_that_does_not_answer_is_tried_again_later(desk: Desk) -> None:
    code, said = await desk.wake(callback_of("call_1"), RINGBACK_URL="http://127.0.0.1:1")

    assert code == os.EX_TEMPFAIL
    assert said.startswith("wake_coding_agent: ")
