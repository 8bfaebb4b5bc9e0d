"""One conversation of an adapter's agent: the commands to its process, and its callbacks."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from scripts.interop_runs.adapter_upstream import release_file
from scripts.interop_runs.driver_process import DriverProcess
from scripts.interop_runs.scenarios import wait_until
from scripts.interop_runs.stage import Stage

AGENT_SECONDS: Final = 120.0
"""For the start of an agent's process and one response of its model, on a busy machine."""
POLL_SECONDS: Final = 0.2
FINISHED: Final = "call.finished"
NOT_PARKED_YET: Final = "NotParkedYet"


class AgentFailed(Exception):
    """The agent did something else than it should; the message is the judgement's detail."""


@dataclass(slots=True, kw_only=True)
class AgentSession:
    """One conversation of the agent, in a folder of its own, and the processes that serve it."""

    stage: Stage
    name: str
    folder: Path
    client_session_id: str
    """What the adapter makes of the name."""
    open_process: Callable[[Path, Mapping[str, str]], DriverProcess]
    process: DriverProcess
    keys: Sequence[str]
    seen: int = 0
    """The callbacks of this session that were taken."""

    async def ask(self, tool: str, arguments: Mapping[str, str]) -> None:
        """The agent calls the tool once for each key, and parks."""
        calls = [{"tool": tool, "arguments": {"key": key, **arguments}} for key in self.keys]
        said = await self._exchange({"do": "ask", "session": self.name, "calls": calls})
        if said["text"]:
            raise AgentFailed(f"the agent did not park: {said['text']}")

    def with_process(self, variables: Mapping[str, str]) -> "AgentSession":
        """The same conversation in another process."""
        return replace(self, process=self.open_process(self.folder, variables))

    async def kill(self) -> None:
        """End the agent's process as a crash does. The next command starts another one."""
        await self.process.kill()

    def release(self, key: str) -> None:
        release_file(self.stage.ledger, key).touch()

    async def next_callback(self, name: str = FINISHED) -> Mapping[str, Any]:
        """The session's next callback."""
        await wait_until(lambda: len(self._callbacks()) > self.seen)
        found = self._callbacks()[self.seen :]
        if not found or found[0]["name"] != name:
            raise AgentFailed(f"no callback {name} arrived, but {[each['name'] for each in found]}")
        self.seen += 1
        return {member: value for member, value in found[0].items() if member != "path"}

    async def wake(self, *callbacks: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
        """What the model has read of the tools' results, for each callback after which it ran to its answer."""
        said = await self._exchange({"do": "wake", "callbacks": list(callbacks)})
        return [json.loads(text) for text in said["texts"] if text]

    async def wake_when_taken(self, callback: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
        """`wake`, again and again while the callback is refused, as its sender does."""
        async with asyncio.timeout(AGENT_SECONDS):
            while True:
                try:
                    return await self.wake(callback)
                except AgentFailed as problem:
                    if NOT_PARKED_YET not in str(problem):
                        raise
                    await asyncio.sleep(POLL_SECONDS)

    async def find_question(self) -> str:
        said = await self._exchange({"do": "questions"})
        if len(said["texts"]) != 1:
            raise AgentFailed(f"the person was shown {len(said['texts'])} questions")
        return str(said["texts"][0])

    async def answer(self, question: str, answer: Mapping[str, Any]) -> None:
        """The person's answer, an ElicitResult."""
        await self._exchange({"do": "answer", "question": question, "answer": answer})

    def count_model_runs(self) -> int:
        return len((self.folder / "model_runs.txt").read_text(encoding="utf-8").splitlines())

    async def _exchange(self, command: Mapping[str, Any]) -> dict[str, Any]:
        said = await self.process.exchange(command)
        if "raised" in said:
            raise AgentFailed(f"raised {said['raised']}")
        return said

    def _callbacks(self) -> list[dict[str, Any]]:
        received = self.stage.receiver.callbacks
        return [each for each in received if each["data"].get("client_session_id") == self.client_session_id]
