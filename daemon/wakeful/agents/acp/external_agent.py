"""Drives an external coding agent, any program that speaks the Agent Client Protocol, from start to end of one prompt.

The program has fewer rights than this process: neither the run's token nor a connection to the daemon. Its text is
shown as it arrives and recorded as one answer. Its tool calls are recorded as it reports them (tool_calls.py). The
session's policies decide its permission requests. It reads and writes files through us, within the bindings. To
continue a conversation, the program resumes its own session. If it cannot, it loads that session, if loading is safe.
Else it gets our own transcript. Called by run.py.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NoReturn
from urllib.parse import quote

from acp import PROTOCOL_VERSION, RequestError, connect_to_agent, schema, text_block
from acp.interfaces import Agent
from acp.meta import CLIENT_METHODS

from wakeful.agents.acp.meter import OWN_PROMPT_TOKENS, Meter
from wakeful.agents.acp.prompt import tell_all, tell_since
from wakeful.agents.acp.tool_calls import UNKNOWN_TOOL, ReportedCall, ReportedCalls
from wakeful.agents.contract import Hearing
from wakeful.agents.loop import Ending, Record
from wakeful.agents.tools.bound_files import Bounds, Refused
from wakeful.agents.tools.file_replace import read_content, replace_content
from wakeful.agents.tools.result_pages import Redaction
from wakeful.agents.tools.tool_set import ToolBox
from wakeful.client.async_client import DaemonClient
from wakeful.core.agents import steps as work
from wakeful.core.agents.model_text import estimate_entry, estimate_tokens
from wakeful.core.agents.turns import Answered
from wakeful.core.spec.agent import AgentSpec, ExternalAgentSettings
from wakeful.errors import OperatorError
from wakeful.text.unicode import SendablePieces, make_sendable

# The memory key for the program's name and the id of its own session. A fresh conversation clears it.
MEMORY_KEY = "acp_session"
# The memory key for the id of the program's own session and the last cost that the program reported for that session.
COST_KEY = "acp_cost"
# The most bytes of one line of the protocol. A line can contain a whole file.
LONGEST_LINE_BYTES = 64 << 20
START_SECONDS = 60.0
# The programs in which loading a session destroys it (google-gemini/gemini-cli#28693). They get our transcript instead.
UNSAFE_LOADERS = ("gemini",)
# Seconds that a program has to stop by itself after we asked it to stop. Then it is killed.
STOP_SECONDS = 10.0
_NEEDS_LOGIN = -32000
# The text that redaction writes in place of a value.
_SECRET_MARK = re.compile(r"\[secret [^\]\n]+\]")
_AMOUNT = re.compile(r"\d+(\.\d+)?(e-?\d+)?")
_LONGEST_WORDS = 500


class UnsupportedMethods:
    """The methods of the protocol that we do not support: terminals, questions and extensions.

    We announce no capability for them. An agent that calls one anyway gets the error that the method is unknown.
    Unsupported notifications are ignored.
    """

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: list[str] | None = None,
        env: list[schema.EnvVariable] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **_: Any,
    ) -> schema.CreateTerminalResponse:
        _refuse(CLIENT_METHODS["terminal_create"])

    async def terminal_output(self, session_id: str, terminal_id: str, **_: Any) -> schema.TerminalOutputResponse:
        _refuse(CLIENT_METHODS["terminal_output"])

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> schema.ReleaseTerminalResponse:
        _refuse(CLIENT_METHODS["terminal_release"])

    async def wait_for_terminal_exit(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> schema.WaitForTerminalExitResponse:
        _refuse(CLIENT_METHODS["terminal_wait_for_exit"])

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> schema.KillTerminalResponse:
        _refuse(CLIENT_METHODS["terminal_kill"])

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> schema.CreateElicitationResponse:
        _refuse(CLIENT_METHODS["elicitation_create"])

    async def complete_elicitation(self, elicitation_id: str, **_: Any) -> None:
        """Do nothing. We support no questions of the program, so no answer to one can arrive."""

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        _refuse(f"_{method}")

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Do nothing. We know no extensions, and a notification needs no answer."""


def _refuse(method: str) -> NoReturn:
    raise RequestError.method_not_found(method)


class ExternalAgent(UnsupportedMethods):
    """One prompt to one program. `spawn` starts the program and returns its process, with pipes."""

    def __init__(
        self,
        beginning: work.Beginning,
        bounds: Bounds,
        tools: ToolBox,
        record: Record,
        link: DaemonClient,
        spawn: Callable[[Sequence[str]], Any],
        say: Callable[[str], None],
        hearing: Hearing,
        servers: Sequence[schema.McpServerStdio] = (),
    ) -> None:
        """Take the parts of the run. `servers` are the MCP servers that the program gets when it opens its session."""
        self._beginning = beginning
        self._agent: AgentSpec = beginning.agent
        self._bounds = bounds
        self._tools = tools
        self._record = record
        self._link = link
        self._redact = Redaction(link).redact
        self._spawn = spawn
        self._say = say
        self._hearing = hearing
        self._hear = hearing.begin(beginning.turns + 1)
        self._said: list[str] = []
        self._pieces, self._thoughts = SendablePieces(), SendablePieces()
        self._servers: list[Any] = list(servers)
        self._calls = ReportedCalls(self._record_step, say)
        self._permitted: dict[str, bool] = {}
        self._is_replaying = False
        self._is_reopened = False
        self._told_before: schema.UsageUpdate | None = None
        self._turn = 0
        self._meter = Meter(self.name, 0)
        self._cost_before = 0.0
        # Only one task at a time reports the spending.
        self._metering = asyncio.Lock()
        # The reason why the daemon ended the run, and an error of ours during the prompt. Both cancel the prompt.
        self._end: str | None = None
        self._stopped = asyncio.Event()
        self._failure: Exception | None = None
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
            raise OperatorError(
                f"{self.name}: {_say_error(error)}; its own messages are in the output of the run"
            ) from None
        finally:
            await _end_process(process)

    async def _drive(self, process: asyncio.subprocess.Process) -> Ending:
        # Resuming is an unstable part of the protocol, which the library must be told to use.
        connection = connect_to_agent(self, process.stdin, process.stdout, use_unstable_protocol=True)
        self._connection = connection
        try:
            async with asyncio.timeout(START_SECONDS):
                found = await connection.initialize(
                    protocol_version=PROTOCOL_VERSION,
                    client_capabilities=schema.ClientCapabilities(fs=_offer_files(self._agent.outside), terminal=False),
                    client_info=schema.Implementation(name="wakeful", version="1"),
                )
                await self._log_in(connection, found)
                told = await self._open(connection, found)
            return await self._prompt(connection, told)
        finally:
            await connection.close()

    # -- the program's session ----------------------------------------------------------------

    async def _log_in(self, connection: Agent, found: schema.InitializeResponse) -> None:
        wanted, ways = self._agent.outside.login, [method.id for method in found.auth_methods or ()]
        if wanted is None:
            return
        if wanted not in ways:
            raise OperatorError(
                f"{self.name} has no login {wanted!r}; it offers {_list_words(ways)}: correct acp.login in "
                f"agents/{self._agent.name}.yaml"
            )
        await connection.authenticate(method_id=wanted)

    async def _open(self, connection: Agent, found: schema.InitializeResponse) -> str:
        """Reopen the program's earlier session, or open a new one. Returns the text of the prompt."""
        known = await self._find_known()
        reopened = await self._reopen(connection, found, known) if known is not None else None
        if reopened is None:
            await self._choose_mode(connection, await self._open_new(connection, found))
            return tell_all(self._beginning, self.name)
        self._session = known
        self._is_reopened = True
        await self._choose_mode(connection, reopened)
        return tell_since(self._beginning, self.name)

    async def _find_known(self) -> str | None:
        """Return the id of the program's own session of this conversation.

        None if that session must not be reopened.
        """
        program, _, session = self._beginning.memory.get(MEMORY_KEY, "").partition(" ")
        if program != self.name or not session:
            return None
        # A session from before a rewind is not reopened, because it knows turns that the rewind removed.
        kept, rewound = await self._find_last("memory_set", key=MEMORY_KEY), await self._find_last("session_rewound")
        return session if kept > rewound else None

    async def _reopen(
        self, connection: Agent, found: schema.InitializeResponse, known: str
    ) -> schema.ResumeSessionResponse | schema.LoadSessionResponse | None:
        root = self._beginning.root
        try:
            if _can_resume(found):
                return await connection.resume_session(cwd=root, session_id=known, mcp_servers=self._servers)
            if not _can_load(found):
                return None
            self._is_replaying = True
            return (
                await connection.load_session(cwd=root, session_id=known, mcp_servers=self._servers)
                or schema.LoadSessionResponse()
            )
        except RequestError as error:
            # The program may have lost its session, or our session may have moved to another host. Our log has the
            # whole conversation.
            self._say(
                f"[{self.name} no longer has its session {known} ({_say_error(error)}): "
                "the whole conversation is sent again]\n"
            )
            return None
        finally:
            self._is_replaying = False

    async def _open_new(self, connection: Agent, found: schema.InitializeResponse) -> schema.NewSessionResponse:
        try:
            opened = await connection.new_session(cwd=self._beginning.root, mcp_servers=self._servers)
        except RequestError as error:
            if error.code != _NEEDS_LOGIN:
                raise
            ways = _list_words([method.id for method in found.auth_methods or ()])
            words = (
                f"{self.name} needs a login ({_say_error(error)}): give it its key, acp: {{key: NAME}}, or "
                f"name a login that it offers ({ways}), acp: {{login: …}}"
            )
            raise OperatorError(words) from None
        self._session = opened.session_id
        kept = {"key": MEMORY_KEY, "value": f"{self.name} {self._session}", "for_now": True}
        await self._link.call("remember", kept, key=f"{self._beginning.run_id}.acp")
        return opened

    async def _choose_mode(self, connection: Agent, opened: Any) -> None:
        """Set the mode that the spec names.

        Newer programs offer their modes as an option and not as a list of modes.
        """
        wanted = self._agent.outside.mode
        if wanted is None:
            return
        assert self._session is not None
        modes = [mode.id for mode in opened.modes.available_modes] if opened.modes is not None else []
        # A program may report no modes for a reopened session. Then the program itself refuses an unknown mode.
        is_silent = (
            not isinstance(opened, schema.NewSessionResponse) and opened.modes is None and opened.config_options is None
        )
        if wanted in modes or is_silent:
            await connection.set_session_mode(session_id=self._session, mode_id=wanted)
            return
        options = {one.id: _list_values(one) for one in opened.config_options or () if one.category == "mode"}
        option = next((name for name, values in options.items() if wanted in values), None)
        if option is None:
            offered = dict.fromkeys((*modes, *(value for values in options.values() for value in values)))
            raise OperatorError(
                f"{self.name} has no mode {wanted!r}; it offers {_list_words(list(offered))}: correct acp.mode in "
                f"agents/{self._agent.name}.yaml"
            )
        await connection.set_config_option(config_id=option, session_id=self._session, value=wanted)

    # -- one prompt ---------------------------------------------------------------------------

    async def _prompt(self, connection: Agent, told: str) -> Ending:
        turn, size = self._beginning.turns + 1, self._estimate_held(told)
        self._turn = turn
        self._meter = Meter(self.name, size)
        self._cost_before = self._find_cost_before()
        recorded = await self._record(
            work.RequestTurn(
                turn=turn, model=self.name, input_tokens=size, max_output_tokens=self._agent.settings.max_output_tokens
            )
        )
        if recorded.end is not None:
            return Ending(recorded.end)
        assert self._session is not None
        answer = await self._wait_for_answer(connection.prompt(session_id=self._session, prompt=[text_block(told)]))
        if self._end is None:
            await self._calls.conclude()
        if self._failure is not None:
            raise self._failure
        usage, usd = self._meter.conclude(answer), self._meter.find_cost(self._cost_before)
        answered = Answered(
            model=self.name, text=self.last_words, stop="length" if answer.stop_reason == "max_tokens" else "done"
        )
        await self._hearing.settle()
        recorded = await self._record(work.RecordAnswer(turn=turn, answer=answered, usage=usage, usd=usd))
        await self._keep_cost()
        if self._end is not None or recorded.end is not None:
            return Ending(self._end or recorded.end)
        match answer.stop_reason:
            case "end_turn":
                return Ending()
            case reason:
                words = f"{self.name} stopped: {reason.replace('_', ' ')}"
                await self._record(work.Halt(words=words))
                return Ending(words)

    async def _wait_for_answer(self, prompting: Coroutine[Any, Any, schema.PromptResponse]) -> schema.PromptResponse:
        """Wait for the program's answer. After the program was asked to stop, wait at most STOP_SECONDS."""
        asked, stopped = asyncio.ensure_future(prompting), asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((asked, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                await asyncio.wait((asked,), timeout=STOP_SECONDS)
            return asked.result() if asked.done() else schema.PromptResponse(stop_reason="cancelled")
        finally:
            asked.cancel()
            stopped.cancel()

    def _estimate_held(self, told: str) -> int:
        """Estimate the tokens of the first request: the program's own prompt, its session so far, and this prompt."""
        if self._told_before is not None:
            return self._told_before.used + estimate_tokens(told)
        heard = sum(estimate_entry(entry) for entry in self._beginning.entries) if self._is_reopened else 0
        return OWN_PROMPT_TOKENS + heard + estimate_tokens(told)

    def _find_cost_before(self) -> float:
        if self._told_before is not None and self._told_before.cost is not None:
            return self._told_before.cost.amount
        session, _, amount = self._beginning.memory.get(COST_KEY, "").partition(" ")
        return float(amount) if session == self._session and _AMOUNT.fullmatch(amount) else 0.0

    async def _keep_cost(self) -> None:
        """Save the session's cost, so that the next run is charged only with the increase."""
        cost = self._meter.session_cost
        if cost is not None and cost != self._cost_before:
            kept = {"key": COST_KEY, "value": f"{self._session} {cost!r}", "for_now": True}
            await self._link.call("remember", kept, key=f"{self._beginning.run_id}.acp_cost")

    async def _report_spent(self) -> None:
        """Report the spending to the daemon if it grew. The daemon may end the run."""
        async with self._metering:
            news = self._meter.take_news(self._cost_before)
            if news is not None:
                usage, usd = news
                await self._record_step(
                    work.MeterTurn(turn=self._turn, requests=self._meter.requests, usage=usage, usd=usd)
                )

    @property
    def last_words(self) -> str:
        return make_sendable("".join(self._said)).strip()

    async def _record_step(self, step: work.PostedStep) -> None:
        """Record a step. If that fails or ends the run, cancel the prompt: nothing may happen without a record."""
        if self._end is not None or self._failure is not None:
            return
        try:
            recorded = await self._record(step)
        except Exception as error:
            # The library that called us would only log the error, so it is raised when the prompt is over.
            self._failure = error
            await self._cancel()
            return
        if recorded.end is not None:
            self._end = recorded.end
            await self._cancel()

    async def _cancel(self) -> None:
        assert self._connection is not None and self._session is not None
        self._stopped.set()
        await self._connection.cancel(session_id=self._session)

    # -- requests of the program --------------------------------------------------------------

    def on_connect(self, conn: Agent) -> None:
        """Do nothing. The library calls this when it is connected."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        if self._is_replaying:
            return
        match update:
            case schema.AgentMessageChunk(content=schema.TextContentBlock(text=text)):
                self._said.append(text)
                self._hear(self._pieces.take(text))
                self._meter.see_words(text)
            case schema.AgentThoughtChunk(content=schema.TextContentBlock(text=text)):
                self._hear(self._thoughts.take(text), "thinking")
                self._meter.see_words(text)
            case schema.ToolCallStart() | schema.ToolCallProgress():
                self._meter.see_call(update)
                await self._calls.take(update)
            case schema.UsageUpdate() if not self._turn:
                # A reopened session may report its size and cost before the prompt.
                self._told_before = update
            case schema.UsageUpdate():
                self._meter.see_usage(update)
            case _:
                return
        if self._turn:
            await self._report_spent()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[schema.PermissionOption], **_: Any
    ) -> schema.RequestPermissionResponse:
        told = self._calls.learn(tool_call)
        self._meter.see_call(tool_call)
        if (refusal := self._find_refusal(told)) is not None:
            self._say(f"\n[{refusal}]\n")
            is_allowed = False
        elif (policy := self._tools.policy_of(told.tool)) == "ask" or (policy == "deny" and told.tool == UNKNOWN_TOOL):
            answer = self._permitted.get(question := _name_question(told))
            if answer is None:
                await self._ask_person(question, told.tool, f"may it do this: {told.title or told.id}?")
                return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
            is_allowed = answer
        else:
            is_allowed = policy == "allow"
        await self._calls.begin(told)
        # A call that could not be recorded must not be carried out.
        return _choose(options, is_allowed and self._end is None and self._failure is None)

    def _find_refusal(self, told: ReportedCall) -> str | None:
        """Return a refusal if the program wants to change a file that is not bound for writing, else None.

        The kernel's confinement is coarser, because it allows writes in the whole folder of an output.
        """
        if told.tool != "edit":
            return None
        try:
            for path in told.places:
                self._bounds.place(path, "write")
        except Refused as refusal:
            return f"refused: {told.title or told.id}: {refusal}"
        return None

    async def _ask_person(self, call: str, tool: str, words: str) -> None:
        recorded = await self._record(work.AskPerson(call=call, name=tool, text=words, is_permission=True))
        self._end = recorded.end or words
        await self._cancel()

    async def read_text_file(
        self, session_id: str, path: str, line: int | None = None, limit: int | None = None, **_: Any
    ) -> schema.ReadTextFileResponse:
        text = (await self._reach(lambda: read_content(self._bounds, self._bounds.place(path, "read")), path)).decode(
            errors="replace"
        )
        # Redact before the text is cut, because half of a value would not be found.
        text = await self._redact(text)
        if line is not None or limit is not None:
            first = max((line or 1) - 1, 0)
            text = "".join(text.splitlines(keepends=True)[first : None if limit is None else first + limit])
        self._meter.see_file(text)
        return schema.ReadTextFileResponse(content=text)

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> schema.WriteTextFileResponse:
        # A program that asks for permission before it edits has its answer. A program may also write without asking, so
        # check the policies here too.
        if self._tools.policy_of("write") != "allow" or self._tools.policy_of("edit") == "deny":
            policies = f"write: {self._tools.policy_of('write')}, edit: {self._tools.policy_of('edit')}"
            raise RequestError.invalid_params(
                {"details": f"the policies of this session do not allow it to write files ({policies})"}
            )
        place = await self._reach(lambda: self._bounds.place(path, "write"), path)
        if (name := await self._find_lost_secret(place, content)) is not None:
            words = (
                f"{path} contains the value of a secret, which was shown as {name}; this text would overwrite the "
                "value, so nothing was written"
            )
            raise RequestError.invalid_params({"details": words})
        await self._reach(lambda: replace_content(self._bounds, place, content.encode()), path)
        return schema.WriteTextFileResponse()

    async def _find_lost_secret(self, place: str, content: str) -> str | None:
        """Return a redaction mark of the new content if writing it would overwrite the secret's value in the file."""
        marks = list(dict.fromkeys(_SECRET_MARK.findall(content)))
        if not marks:
            return None
        try:
            before = (await asyncio.to_thread(read_content, self._bounds, place, "write")).decode(errors="replace")
        except (FileNotFoundError, Refused, OSError):
            return None
        shown = await self._redact(before)
        return next((mark for mark in marks if mark in shown and mark not in before), None)

    async def _reach(self, do: Callable[[], Any], path: str) -> Any:
        try:
            return await asyncio.to_thread(do)
        except FileNotFoundError:
            raise RequestError.resource_not_found(path) from None
        except (Refused, OSError) as error:
            raise RequestError.invalid_params({"details": str(error)}) from None

    # -- earlier records ----------------------------------------------------------------------

    async def _read_permissions(self) -> dict[str, bool]:
        """Read a person's answers to permission requests in this session, so that no request is asked twice."""
        answers = [(line["seq"], line["payload"] or {}) for line in await self._read_log("question_answered")]
        own = [(seq, one) for seq, one in answers if (one.get("call") or "").startswith("acp-")]
        # A denial because no person answered in time holds only for the run that asked.
        last = await self._find_last("run_finished") if any(one.get("is_unanswered") for _, one in own) else 0
        return {
            one["call"]: one["text"].lower() in ("yes", "y")
            for seq, one in own
            if seq > last or not one.get("is_unanswered")
        }

    async def _find_last(self, kind: str, **wanted: str) -> int:
        """Return the seq of the last record of a kind with these payload fields, or 0."""
        lines = await self._read_log(kind)
        return max(
            (
                line["seq"]
                for line in lines
                if all((line["payload"] or {}).get(name) == value for name, value in wanted.items())
            ),
            default=0,
        )

    async def _read_log(self, kind: str) -> list[dict[str, Any]]:
        session = quote(os.fsencode(self._beginning.session), safe="")
        lines: list[dict[str, Any]] = await self._link.look(f"/sessions/{session}/log", {"kind": kind})
        return lines


async def _end_process(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _offer_files(outside: ExternalAgentSettings) -> schema.FileSystemCapabilities:
    is_offered = outside.files == "ours"
    return schema.FileSystemCapabilities(read_text_file=is_offered, write_text_file=is_offered)


def _can_resume(found: schema.InitializeResponse) -> bool:
    capabilities = found.agent_capabilities.session_capabilities if found.agent_capabilities is not None else None
    return capabilities is not None and capabilities.resume is not None


def _can_load(found: schema.InitializeResponse) -> bool:
    name = found.agent_info.name.lower() if found.agent_info is not None else ""
    is_safe = not any(word in name for word in UNSAFE_LOADERS)
    return is_safe and found.agent_capabilities is not None and bool(found.agent_capabilities.load_session)


def _list_values(option: Any) -> list[str]:
    """List the values that an option can have. The choices may be in groups."""
    choices = option.options if isinstance(option, schema.SessionConfigOptionSelect) else ()
    return [one.value for choice in choices for one in getattr(choice, "options", (choice,))]


def _name_question(told: ReportedCall) -> str:
    return "acp-" + hashlib.blake2b(f"{told.tool} {told.title or told.id}".encode(), digest_size=8).hexdigest()


def _choose(options: list[schema.PermissionOption], is_allowed: bool) -> schema.RequestPermissionResponse:
    """Choose an option, if possible one for this call only, because the policies can change with the spec."""
    wanted = ("allow_once", "allow_always") if is_allowed else ("reject_once", "reject_always")
    for kind in wanted:
        for option in options:
            if option.kind == kind:
                return schema.RequestPermissionResponse(
                    outcome=schema.AllowedOutcome(option_id=option.option_id, outcome="selected")
                )
    return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))


def _list_words(words: Sequence[str]) -> str:
    return ", ".join(words) or "none"


def _say_error(error: BaseException) -> str:
    match error:
        case TimeoutError():
            return f"no answer within {START_SECONDS:g} s"
        # The details are often the only useful part: the message is "Internal error", and the details have the message
        # of the model's provider.
        case RequestError(data={"details": str(told)} | {"message": str(told)} | str(told)) if told:
            return f"{error}: {told[:_LONGEST_WORDS]}"
        case _:
            return str(error) or type(error).__name__
