"""The adapters of `ringback.agents`: each runs its example, with a scripted model, in an environment with its framework."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.interop_runs.environments import DRIVERS
from scripts.interop_runs.pins import Ecosystem


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """`module` names the adapter in `ringback.agents`, its example, and its driver `adapter_….py`."""

    name: str
    title: str
    module: str
    extra: str
    """The extra of this package that installs the framework."""
    client_session_id: str = "{session}"
    """What the adapter makes of the conversation's name."""
    saves_first: bool = False
    """Whether the adapter stores the agent's state before it starts its calls. Then no callback comes too early."""
    graphs: Sequence[str] = ()
    """Further agents of the driver, made in other ways than the example: each is the scenario `several` again."""
    helpers: Sequence[str] = ()
    """Further modules of `ringback.agents` that import the framework."""
    ecosystem: Ecosystem = Ecosystem.PYPI

    @property
    def environment_name(self) -> str:
        return self.name

    @property
    def driver(self) -> str:
        return f"adapter_{self.module}.py"

    @property
    def edges(self) -> Path:
        """The checks of what only this framework can do. Not every adapter has some."""
        return DRIVERS / f"edges_{self.module}.py"

    @property
    def typed_files(self) -> Sequence[str]:
        """The files that pyright checks in the environment of the framework."""
        modules = [f"app/ringback/agents/{module}.py" for module in (self.module, *self.helpers)]
        return [*modules, f"scripts/examples/agents/{self.module}_agent.py"]


ADAPTERS: Final[Sequence[Adapter]] = (
    Adapter(name="adapter-pydantic-ai", title="Pydantic AI", module="pydantic_ai", extra="pydantic-ai"),
    Adapter(
        name="adapter-langgraph",
        title="LangGraph",
        module="langgraph",
        extra="langgraph",
        graphs=("tool node", "own nodes"),
        helpers=("langgraph_thread",),
    ),
    Adapter(
        name="adapter-openai-agents",
        title="OpenAI Agents SDK",
        module="openai_agents",
        extra="openai-agents",
        saves_first=True,
        helpers=("openai_agents_tools",),
    ),
    Adapter(
        name="adapter-google-adk",
        title="Google ADK",
        module="google_adk",
        extra="google-adk",
        client_session_id="reports/user/{session}",
        helpers=("google_adk_session",),
    ),
)
