"""semantic-kernel: the functions of `MCPStreamableHttpPlugin`, each invoked as the kernel invokes them for a model."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import kit
from semantic_kernel import Kernel
from semantic_kernel.connectors.mcp import MCPStreamableHttpPlugin
from semantic_kernel.contents import ChatHistory, FunctionCallContent


class SemanticKernelClient:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def list_tools(self) -> list[str]:
        return list(self._kernel.get_plugin("stage").functions)

    async def call(
        self, tool: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None, on_progress: Callable[[], None]
    ) -> kit.Answer:
        del meta, on_progress
        history = ChatHistory()
        wanted = FunctionCallContent(id="1", plugin_name="stage", function_name=tool, arguments=arguments)
        await self._kernel.invoke_function_call(wanted, history)
        return kit.Answer(text="\n".join(str(item.result) for item in history.messages[-1].items))


@asynccontextmanager
async def open_client(job: kit.Job) -> AsyncGenerator[SemanticKernelClient]:
    async with MCPStreamableHttpPlugin(name="stage", url=job.url, headers=dict(job.headers)) as plugin:
        kernel = Kernel()
        kernel.add_plugin(plugin)
        yield SemanticKernelClient(kernel)


kit.run(open_client)
