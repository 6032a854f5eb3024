"""An external coding agent as a run: any program that speaks the Agent Client Protocol, driven from its start to the end of one prompt.

It is started narrower than the process that thinks: it has neither the run's token nor a way to the daemon. What it says is shown as it comes and recorded
as one answer, what it does is recorded as it tells it; its questions are answered by the session's policy, and it reads and writes
files through us, by the bindings. Capabilities are read, never assumed: resume, else load where that is safe, else our own transcript.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from acp import PROTOCOL_VERSION, RequestError, connect_to_agent, schema, text_block
from acp.interfaces import Agent

from wakeful.agents.daemon import DaemonLink
from wakeful.agents.loop import Ending, Record
from wakeful.agents.tools.box import ToolBox
from wakeful.agents.tools.place import Bounds, Refused
from wakeful.agents.tools.replacing import read_content, replace_content
from wakeful.core import work
from wakeful.core.agent import AgentSpec
from wakeful.core.tokens import estimate_tokens
from wakeful.core.turn import Answered, Asked, Entry, Returned, TokenUsage, ToolCall
from wakeful.errors import OperatorError

# Where the id of its own session is kept: a fresh conversation clears it.
MEMORY_KEY = "acp_session"
# A line holds a whole file.
LONGEST_LINE_BYTES = 64 << 20
START_SECONDS = 60.0
# Loading a session there destroys it (google-gemini/gemini-cli#28693): ours is told anew instead.
UNSAFE_LOADERS = ("gemini",)
# What a kind of theirs is called here; what we have no word for needs a person.
TOOL_OF_KIND = {"read": "read", "search": "search", "edit": "edit", "delete": "edit", "move": "edit", "execute": "shell"}


class ExternalAgent:
    """One prompt to one program. `spawn` starts it and returns its process, with pipes."""

    def __init__(
        self,
        beginning: work.Beginning,
        bounds: Bounds,
        tools: ToolBox,
        record: Record,
        link: DaemonLink,
        spawn: Callable[[Sequence[str]], Any],
        say: Callable[[str], None],
    ) -> None:
        self._beginning = beginning
        self._agent: AgentSpec = beginning.agent
        self._bounds = bounds
        self._tools = tools
        self._record = record
        self._link = link
        self._spawn = spawn
        self._say = say
        self._said: list[str] = []
        self._titles: dict[str, str] = {}
        self._permitted: dict[str, bool] = {}
        self._is_replaying = False
        self._end: str | None = None
        self._connection: Agent | None = None
        self._session: str | None = None

    @property
    def name(self) -> str:
        return self._agent.model_name

    async def run(self) -> Ending:
        self._permitted = await self._read_permissions()
        process = await self._spawn(self._agent.acp)
        try:
            return await self._drive(process)
        except (TimeoutError, RequestError, ConnectionError, BrokenPipeError) as error:
            raise OperatorError(f"{self.name}: {_say_error(error)}; its own words are in the output of the run") from None
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()

    async def _drive(self, process: asyncio.subprocess.Process) -> Ending:
        # Resuming is young in the protocol: the library asks for a word that one knows.
        connection = connect_to_agent(self, process.stdin, process.stdout, use_unstable_protocol=True)
        self._connection = connection
        try:
            async with asyncio.timeout(START_SECONDS):
                found = await connection.initialize(
                    protocol_version=PROTOCOL_VERSION,
                    client_capabilities=schema.ClientCapabilities(fs=schema.FileSystemCapabilities(read_text_file=True, write_text_file=True), terminal=False),
                    client_info=schema.Implementation(name="wakeful", version="1"),
                )
                told = await self._open(connection, found)
            return await self._prompt(connection, told)
        finally:
            await connection.close()

    async def _open(self, connection: Agent, found: schema.InitializeResponse) -> str:
        """Its session of before if it can be had, and what is to be said in this one."""
        root = self._beginning.root
        known = self._beginning.memory.get(MEMORY_KEY)
        if known is not None and _can_resume(found):
            await connection.resume_session(cwd=root, session_id=known, mcp_servers=[])
            self._session = known
        elif known is not None and _can_load(found):
            self._is_replaying = True
            await connection.load_session(cwd=root, session_id=known, mcp_servers=[])
            self._is_replaying = False
            self._session = known
        if self._session is not None:
            return "\n\n".join(asked.text for asked in self._beginning.later) or "Go on where you stopped."
        self._session = (await connection.new_session(cwd=root, mcp_servers=[])).session_id
        await self._link.call("remember", {"key": MEMORY_KEY, "value": self._session, "for_now": True}, key=f"{self._beginning.run_id}.acp")
        return "\n\n".join((self._beginning.instructions, *map(_tell, self._beginning.entries), *(asked.text for asked in self._beginning.later)))

    async def _prompt(self, connection: Agent, told: str) -> Ending:
        turn, size = self._beginning.turns + 1, estimate_tokens(told)
        recorded = await self._record(work.RequestTurn(turn=turn, model=self.name, input_tokens=size, max_output_tokens=self._agent.settings.max_output_tokens))
        if recorded.end is not None:
            return Ending(recorded.end)
        assert self._session is not None
        answer = await connection.prompt(session_id=self._session, prompt=[text_block(told)])
        text = "".join(self._said).strip()
        usage = _count(answer.usage, size, text)
        answered = Answered(model=self.name, text=text, stop="length" if answer.stop_reason == "max_tokens" else "done")
        recorded = await self._record(work.RecordAnswer(turn=turn, answer=answered, usage=usage))
        if self._end is not None or recorded.end is not None:
            return Ending(self._end or recorded.end)
        match answer.stop_reason:
            case "end_turn":
                return Ending()
            case reason:
                words = f"{self.name} stopped: {reason.replace('_', ' ')}"
                await self._record(work.Halt(words=words))
                return Ending(words)

    @property
    def last_words(self) -> str:
        return "".join(self._said).strip()

    # -- what it asks of us -------------------------------------------------------------------

    def on_connect(self, conn: Agent) -> None:
        """Nothing is asked before it answered."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        if self._is_replaying:
            return
        match update:
            case schema.AgentMessageChunk(content=schema.TextContentBlock(text=text)):
                self._said.append(text)
                self._say(text)
            case schema.ToolCallStart(tool_call_id=call, title=title):
                self._titles[call] = title
                self._say(f"\n[{title}]\n")
                made = ToolCall(id=call, name=_name(update.kind), arguments=_encode({"title": title, "input": update.raw_input}))
                await self._record(work.CallTool(call=made))
            case schema.ToolCallProgress(tool_call_id=call, status="completed" | "failed"):
                text = f"{self._titles.get(call, call)}: {update.status}"
                await self._record(work.ReturnTool(call=call, name=_name(update.kind), text=text, is_error=update.status == "failed"))

    async def request_permission(self, session_id: str, tool_call: Any, options: list[schema.PermissionOption], **_: Any) -> schema.RequestPermissionResponse:
        tool, title = _name(tool_call.kind), tool_call.title or self._titles.get(tool_call.tool_call_id, tool_call.tool_call_id)
        policy = self._tools.policy_of(tool)
        question = "acp-" + hashlib.blake2b(f"{tool} {title}".encode(), digest_size=8).hexdigest()
        if policy == "ask" or (policy == "deny" and tool == "other"):
            allowed = self._permitted.get(question)
            if allowed is None:
                await self._ask_person(question, tool, f"may it do this: {title}?")
                return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        else:
            allowed = policy == "allow"
        return _choose(options, allowed)

    async def _ask_person(self, call: str, tool: str, words: str) -> None:
        recorded = await self._record(work.AskPerson(call=call, name=tool, text=words, is_permission=True))
        self._end = recorded.end or words
        assert self._connection is not None and self._session is not None
        await self._connection.cancel(session_id=self._session)

    async def read_text_file(self, session_id: str, path: str, line: int | None = None, limit: int | None = None, **_: Any) -> schema.ReadTextFileResponse:
        text = (await self._reach(lambda: read_content(self._bounds, self._bounds.place(path, "read")), path)).decode(errors="replace")
        if line is not None or limit is not None:
            first = max((line or 1) - 1, 0)
            text = "".join(text.splitlines(keepends=True)[first : None if limit is None else first + limit])
        return schema.ReadTextFileResponse(content=text)

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> schema.WriteTextFileResponse:
        if self._tools.policy_of("write") != "allow":
            raise RequestError.invalid_params({"details": f"the policy of this session for writing is {self._tools.policy_of('write')}, not allow"})
        await self._reach(lambda: replace_content(self._bounds, self._bounds.place(path, "write"), content.encode()), path)
        return schema.WriteTextFileResponse()

    async def _reach(self, do: Callable[[], Any], path: str) -> Any:
        try:
            return await asyncio.to_thread(do)
        except FileNotFoundError:
            raise RequestError.resource_not_found(path) from None
        except (Refused, OSError) as error:
            raise RequestError.invalid_params({"details": str(error)}) from None

    async def _read_permissions(self) -> dict[str, bool]:
        """What a person said to what it asked, in this session: the same thing is not asked twice."""
        lines = await self._link.look(f"/sessions/{quote(os.fsencode(self._beginning.session), safe='')}/log", {"kind": "question_answered"})
        answers = (line["payload"] or {} for line in lines)
        return {one["call"]: one["text"].lower() in ("yes", "y") for one in answers if (one.get("call") or "").startswith("acp-")}


def _can_resume(found: schema.InitializeResponse) -> bool:
    capabilities = found.agent_capabilities.session_capabilities if found.agent_capabilities is not None else None
    return capabilities is not None and capabilities.resume is not None


def _can_load(found: schema.InitializeResponse) -> bool:
    name = found.agent_info.name.lower() if found.agent_info is not None else ""
    is_safe = not any(word in name for word in UNSAFE_LOADERS)
    return is_safe and found.agent_capabilities is not None and bool(found.agent_capabilities.load_session)


def _name(kind: str | None) -> str:
    return TOOL_OF_KIND.get(kind or "other", "other")


def _choose(options: list[schema.PermissionOption], is_allowed: bool) -> schema.RequestPermissionResponse:
    """Once: what a session may do can change with its spec."""
    wanted = ("allow_once", "allow_always") if is_allowed else ("reject_once", "reject_always")
    for kind in wanted:
        for option in options:
            if option.kind == kind:
                return schema.RequestPermissionResponse(outcome=schema.AllowedOutcome(option_id=option.option_id, outcome="selected"))
    return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))


def _count(usage: schema.Usage | None, told: int, said: str) -> TokenUsage:
    """By its own count, else by estimate: nothing is free because nobody counted it."""
    if usage is None:
        return TokenUsage(input=told, output=estimate_tokens(said))
    return TokenUsage(input=usage.input_tokens, output=usage.output_tokens, cached=usage.cached_read_tokens or 0)


def _tell(entry: Entry) -> str:
    match entry:
        case Asked(text=text):
            return text
        case Answered(text=text, calls=calls):
            return "\n".join((f"You said: {text}", *(f"You called {call.name} {call.arguments}" for call in calls)))
        case Returned(name=name, text=text):
            return f"{name} returned: {text}"


def _encode(value: Mapping[str, Any]) -> str:
    return json.dumps(value, default=str)[:10_000]


def _say_error(error: BaseException) -> str:
    return f"no answer within {START_SECONDS:g} s" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
