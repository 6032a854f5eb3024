"""A minimal external coding agent. It speaks the Agent Client Protocol over its standard input and output.

Usage: `python scripted_acp_agent.py FOLDER`. The files of FOLDER decide its behaviour:

- `sessions/`: one file for each session, with the prompts that it received. The program writes them.
- `can`: its optional abilities (resume, load, login, modes, options).
- `name`: its name.
- `way`: how it reports its call (at once, in pieces, by its question alone).
- `page`: the file that it writes.
- `spends`: how many words it reads, how often, and what it reports about that.
- `thinks`: the words of its thoughts, sent one by one. It continues when the file `go` exists.
- `uses`: calls of tools of its MCP servers. It asks before each call, and writes the answers to the file `used`.

It reads and writes through its client, and asks before it edits. It also tries to read the disk directly.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import uuid
from pathlib import Path
from typing import Any

from acp import (
    PROTOCOL_VERSION,
    RequestError,
    run_agent,
    schema,
    start_tool_call,
    update_agent_message_text,
    update_agent_thought_text,
    update_tool_call,
)

FOLDER = Path(sys.argv[1])

# The cached tokens are counted in addition to the rest, as some agents do.
USAGE = schema.Usage(total_tokens=35, input_tokens=15, output_tokens=10, cached_read_tokens=5, thought_tokens=5)


def page() -> str:
    return setting("page") or "out/page.md"


def setting(name: str) -> str:
    path = FOLDER / name
    return path.read_text().strip() if path.exists() else ""


class Program:
    def on_connect(self, conn: Any) -> None:
        self.client = conn
        self.cancelled = asyncio.Event()

    async def initialize(self, client_capabilities: Any = None, **_: Any) -> schema.InitializeResponse:
        can = setting("can").split()
        self.is_logged_in = "login" not in can
        told = {name: os.environ.get(name) for name in ("HOME", "SOME_KEY", "OF_AGENT", "OF_RUN", "WAKEFUL_TOKEN_FILE")}
        (FOLDER / "environment").write_text(
            repr({**told, "files": bool(client_capabilities.fs.write_text_file), "listens": self.listen()})
        )
        resume = schema.SessionResumeCapabilities() if "resume" in can else None
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(
                load_session="load" in can, session_capabilities=schema.SessionCapabilities(resume=resume)
            ),
            agent_info=schema.Implementation(name=setting("name") or "small", version="1"),
            auth_methods=[schema.AuthMethodAgent(id="by-key", name="By key")] if "login" in can else [],
        )

    def listen(self) -> bool:
        try:
            socket.create_server(("127.0.0.1", int(setting("port") or 0))).close()
        except OSError:
            return False
        return True

    async def authenticate(self, method_id: str, **_: Any) -> schema.AuthenticateResponse:
        self.is_logged_in = method_id == "by-key"
        return schema.AuthenticateResponse()

    async def new_session(self, cwd: str, mcp_servers: list[Any], **_: Any) -> schema.NewSessionResponse:
        self.servers = mcp_servers
        if not self.is_logged_in:
            raise RequestError.auth_required()
        session = uuid.uuid4().hex
        self.note(session, "new")
        can = setting("can").split()
        modes = [schema.SessionMode(id=name, name=name) for name in ("careful", "bold")]
        choices = [schema.SessionConfigSelectOption(value=name, name=name) for name in ("careful", "bold")]
        option = schema.SessionConfigOptionSelect(
            id="way", name="Way", category="mode", type="select", current_value="bold", options=choices
        )
        return schema.NewSessionResponse(
            session_id=session,
            modes=schema.SessionModeState(current_mode_id="bold", available_modes=modes) if "modes" in can else None,
            config_options=[option] if "options" in can else None,
        )

    async def set_session_mode(self, mode_id: str, session_id: str, **_: Any) -> schema.SetSessionModeResponse:
        self.note(session_id, f"mode {mode_id}")
        return schema.SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: Any, **_: Any
    ) -> schema.SetSessionConfigOptionResponse:
        self.note(session_id, f"{config_id} {value}")
        return schema.SetSessionConfigOptionResponse(config_options=[])

    async def resume_session(self, session_id: str, **_: Any) -> schema.ResumeSessionResponse:
        if not (FOLDER / "sessions" / session_id).exists():
            raise RequestError.resource_not_found(session_id)
        self.note(session_id, "resumed")
        return schema.ResumeSessionResponse()

    async def load_session(self, session_id: str, **_: Any) -> schema.LoadSessionResponse:
        self.note(session_id, "loaded")
        await self.client.session_update(session_id=session_id, update=update_agent_message_text("said long ago"))
        return schema.LoadSessionResponse()

    async def cancel(self, session_id: str, **_: Any) -> None:
        self.note(session_id, "cancelled")
        self.cancelled.set()

    def note(self, session: str, text: str) -> None:
        with (FOLDER / "sessions" / session).open("a") as file:
            file.write(f"{text}\n")

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> schema.PromptResponse:
        text = "\n".join(block.text for block in prompt)
        self.note(session_id, f"prompt: {text!r}")
        if setting("spends"):
            return await self.spend(session_id, *setting("spends").split())
        if setting("thinks"):
            await self.think(session_id)
        if setting("uses"):
            await self.use_servers(session_id, json.loads(setting("uses")))
        code = await self.client.read_text_file(session_id=session_id, path="code.py")
        self.note(session_id, f"read: {code.content!r}")
        await self.tell_call(session_id)
        if not await self.is_permitted(session_id):
            done = "cancelled" if self.cancelled.is_set() else "end_turn"
            await self.client.session_update(session_id=session_id, update=update_tool_call("t1", status="failed"))
            await self.client.session_update(session_id=session_id, update=update_agent_message_text("Then not."))
            return schema.PromptResponse(stop_reason=done)
        await self.client.write_text_file(session_id=session_id, path=page(), content=f"page of {code.content}")
        await self.client.session_update(session_id=session_id, update=update_tool_call("t1", status="completed"))
        await self.try_to_get_out(session_id)
        for word in ("The page ", "is true."):
            await self.client.session_update(session_id=session_id, update=update_agent_message_text(word))
        # FOLDER/stop is the stop reason of an unfinished turn.
        return schema.PromptResponse(stop_reason=setting("stop") or "end_turn", usage=USAGE)

    async def use_servers(self, session_id: str, calls: list[Any]) -> None:
        """Start each MCP server that the client named, as any client of MCP does, and make these calls."""
        # Slow to import, and most tests name no calls.
        from mcp import Client, StdioServerParameters

        found: dict[str, Any] = {"servers": [server.name for server in self.servers], "answers": []}
        for server in self.servers:
            program = StdioServerParameters(command=server.command, args=server.args, env=dict(os.environ))
            async with Client(program) as client:
                found["tools"] = [tool.name for tool in (await client.list_tools()).tools]
                for number, (name, arguments) in enumerate(calls):
                    call = schema.ToolCallUpdate(
                        tool_call_id=f"m{number}",
                        title=f"mcp__{server.name}__{name}",
                        kind="other",
                        raw_input=arguments,
                    )
                    if not await self.ask_for(session_id, call):
                        found["answers"].append([name, "not permitted"])
                        continue
                    result = await client.call_tool(name, arguments)
                    update = update_tool_call(f"m{number}", status="failed" if result.is_error else "completed")
                    await self.client.session_update(session_id=session_id, update=update)
                    found["answers"].append([name, result.is_error, "".join(part.text for part in result.content)])
        (FOLDER / "used").write_text(json.dumps(found))

    async def think(self, session_id: str) -> None:
        for word in setting("thinks").split():
            await self.client.session_update(session_id=session_id, update=update_agent_thought_text(f"{word} "))
        while not (FOLDER / "go").exists():
            await asyncio.sleep(0.01)

    async def spend(self, session_id: str, rounds: str, words: str, *ways: str) -> schema.PromptResponse:
        """Read `words` words in each of `rounds` requests.

        `tells`: report the size of the context. `costs`: report the cost too. `deaf`: ignore a cancellation.
        """
        earlier = sum(line.startswith("round") for line in (FOLDER / "sessions" / session_id).read_text().splitlines())
        for number in range(1, int(rounds) + 1):
            if self.cancelled.is_set() and "deaf" not in ways:
                return schema.PromptResponse(stop_reason="cancelled")
            self.note(session_id, f"round {number}")
            updates: list[Any] = [
                start_tool_call(
                    f"c{number}", f"read {number}", kind="read", status="in_progress", raw_input={"path": "code.py"}
                )
            ]
            updates += [update_tool_call(f"c{number}", status="completed", raw_output="word " * int(words))]
            cost = schema.Cost(amount=0.25 * (earlier + number), currency="USD") if "costs" in ways else None
            if "tells" in ways or cost is not None:
                updates += [
                    schema.UsageUpdate(
                        session_update="usage_update", used=20_000 + number * int(words), size=200_000, cost=cost
                    )
                ]
            for update in updates:
                await self.client.session_update(session_id=session_id, update=update)
            # Give the event loop time to handle a message of the client.
            await asyncio.sleep(0.02)
        await self.client.session_update(session_id=session_id, update=update_agent_message_text("All read."))
        return schema.PromptResponse(stop_reason="end_turn")

    async def tell_call(self, session_id: str) -> None:
        match setting("way"):
            case "by its question alone":
                return
            case "in pieces":
                updates = [start_tool_call("t1", "preparing", kind="edit", status="pending", raw_input={})]
                updates += [
                    update_tool_call("t1", title="edit page.md"),
                    update_tool_call("t1", raw_input={"path": page()}),
                ]
            case _:
                updates = [
                    start_tool_call("t1", "edit page.md", kind="edit", status="pending", raw_input={"path": page()})
                ]
        for update in updates:
            await self.client.session_update(session_id=session_id, update=update)

    async def is_permitted(self, session_id: str) -> bool:
        if setting("way") == "without asking":
            return True
        places = [schema.ToolCallLocation(path=str(Path.cwd() / page()))]
        call = schema.ToolCallUpdate(
            tool_call_id="t1", title="edit page.md", kind="edit", raw_input={"path": page()}, locations=places
        )
        return await self.ask_for(session_id, call)

    async def ask_for(self, session_id: str, call: schema.ToolCallUpdate) -> bool:
        options = [
            schema.PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
            schema.PermissionOption(option_id="no", name="No", kind="reject_once"),
        ]
        answer = await self.client.request_permission(session_id=session_id, tool_call=call, options=options)
        return getattr(answer.outcome, "option_id", None) == "yes"

    async def try_to_get_out(self, session_id: str) -> None:
        """Try to read forbidden files, directly and through the client. Neither may work."""
        tried = {}
        for path in (setting("forbidden"), *setting("token").split()):
            try:
                tried[path] = Path(path).read_text()
            except OSError as error:
                tried[path] = type(error).__name__
        try:
            tried["client"] = (
                await self.client.read_text_file(session_id=session_id, path=setting("forbidden"))
            ).content
        except Exception as error:
            tried["client"] = type(error).__name__
        self.note(session_id, f"tried: {tried}")


if __name__ == "__main__":
    asyncio.run(run_agent(Program(), use_unstable_protocol=True))
