"""google-adk: an agent with a scripted model and `McpToolset`; what counts is the function response in its next request."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import kit
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.mcp_tool import McpToolset, StreamableHTTPConnectionParams
from google.genai import types
from pydantic import Field


class ScriptedModel(BaseLlm):
    """Calls one tool, then ends and keeps the response that it was shown."""

    model: str = "scripted"
    call: dict[str, Any] = Field(default_factory=dict)
    shown: list[Any] = Field(default_factory=list)

    async def generate_content_async(self, llm_request: LlmRequest, stream: Any = None) -> AsyncGenerator[LlmResponse]:
        del stream
        parts = llm_request.contents[-1].parts or []
        self.shown += [part.function_response.response for part in parts if part.function_response]
        part = (
            types.Part(text="done")
            if self.shown
            else types.Part(function_call=types.FunctionCall(name=self.call["tool"], args=self.call["arguments"]))
        )
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


class AdkClient:
    def __init__(self, toolset: McpToolset) -> None:
        self._toolset = toolset

    async def list_tools(self) -> list[str]:
        return [tool.name for tool in await self._toolset.get_tools()]

    async def call(
        self, tool: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None, on_progress: Callable[[], None]
    ) -> kit.Answer:
        del meta, on_progress
        model = ScriptedModel(call={"tool": tool, "arguments": arguments})
        runner = InMemoryRunner(LlmAgent(name="interop", model=model, tools=[self._toolset]), app_name="interop")
        session = await runner.session_service.create_session(app_name="interop", user_id="user")
        message = types.Content(role="user", parts=[types.Part(text="go")])
        async for _event in runner.run_async(user_id="user", session_id=session.id, new_message=message):
            pass
        return kit.Answer(text=kit.json.dumps(model.shown[0], default=str))


@asynccontextmanager
async def open_client(job: kit.Job) -> AsyncGenerator[AdkClient]:
    toolset = McpToolset(connection_params=StreamableHTTPConnectionParams(url=job.url, headers=dict(job.headers)))
    try:
        yield AdkClient(toolset)
    finally:
        await toolset.close()


kit.run(open_client)
