"""A peer's harness at work, in a process of its own: `peer_turns.py HARNESS BASE_URL FOLDER HISTORY`.

turns.py starts it, and the model records the times. Each harness is used as its documentation says, for an agent with
tools and a conversation on disk. First, HISTORY turns are written by the harness's own call. The tool does the same as
ours: it reads a line of a small file.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

PROMPT = "You keep page.md true."
ASKED = "Read page.md from every line."
MOST_STEPS = 100_000


def read_page(folder: Path, offset: int, limit: int) -> str:
    lines = (folder / "page.md").read_text().splitlines()
    return "\n".join(lines[offset - 1 : offset - 1 + limit])


def think_with_langgraph(url: str, folder: Path, history: int, durability: Literal["sync", "async"]) -> None:
    """Run LangGraph's agent.

    `sync` flushes a step before the next one begins, as ours does. `async`, its default, flushes while the next one
    runs.
    """
    from langchain.agents import create_agent
    from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.checkpoint.sqlite import SqliteSaver

    @tool
    def read(path: str, offset: int, limit: int) -> str:
        """Read a file."""
        return read_page(folder, offset, limit)

    past: list[AnyMessage] = [HumanMessage(ASKED)]
    for turn in range(1, history + 1):
        arguments = {"path": "page.md", "offset": turn, "limit": 1}
        past.append(AIMessage("", tool_calls=[{"name": "read", "args": arguments, "id": f"past_{turn}"}]))
        past.append(ToolMessage(read_page(folder, turn, 1), tool_call_id=f"past_{turn}"))
    with SqliteSaver.from_conn_string(str(folder / "langgraph.db")) as saver:
        model = ChatOpenAI(model="bench", base_url=url, api_key="none", max_retries=0)  # type: ignore[arg-type]
        agent = create_agent(model, [read], system_prompt=PROMPT, checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "talk"}, "recursion_limit": MOST_STEPS}
        if history:
            agent.update_state(config, {"messages": past}, as_node="tools")
        agent.invoke({"messages": [HumanMessage("Go on." if history else ASKED)]}, config, durability=durability)


def think_with_agents_sdk(url: str, folder: Path, history: int) -> None:
    from openai import AsyncOpenAI

    from agents import Agent, OpenAIChatCompletionsModel, Runner, SQLiteSession, function_tool, set_tracing_disabled

    @function_tool
    def read(path: str, offset: int, limit: int) -> str:
        """Read a file."""
        return read_page(folder, offset, limit)

    past: list[Any] = [{"role": "user", "content": ASKED}]
    for turn in range(1, history + 1):
        arguments = f'{{"path": "page.md", "offset": {turn}, "limit": 1}}'
        past.append({"type": "function_call", "call_id": f"past_{turn}", "name": "read", "arguments": arguments})
        past.append({"type": "function_call_output", "call_id": f"past_{turn}", "output": read_page(folder, turn, 1)})

    async def think() -> None:
        model = OpenAIChatCompletionsModel(
            model="bench", openai_client=AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
        )
        agent = Agent(name="bench", instructions=PROMPT, model=model, tools=[read])
        session = SQLiteSession("talk", folder / "agents.db")
        if history:
            await session.add_items(past)
        await Runner.run(agent, "Go on." if history else ASKED, session=session, max_turns=MOST_STEPS)
        session.close()

    set_tracing_disabled(True)
    asyncio.run(think())


HARNESSES: dict[str, Callable[[str, Path, int], None]] = {
    "langgraph": lambda url, folder, history: think_with_langgraph(url, folder, history, "sync"),
    "langgraph-async": lambda url, folder, history: think_with_langgraph(url, folder, history, "async"),
    "agents-sdk": think_with_agents_sdk,
}


if __name__ == "__main__":
    HARNESSES[sys.argv[1]](sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
