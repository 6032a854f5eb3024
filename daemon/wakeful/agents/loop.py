"""The durable loop: ask the model, record its answer, carry out its calls, record their results, ask again.

Every request, answer and call is recorded by the daemon before it takes effect. So if the process dies anywhere, the
next one can continue the conversation. Work without effects does not wait: a request is prepared while its record is
being written, and a look runs meanwhile. The model gets the results when all of them are on disk. The loop knows
providers and tools only by their contracts. An early end of the run is an `Ending`, never an exception.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from wakeful.agents.contract import (
    Hearing,
    Model,
    ModelAnswer,
    ModelRequest,
    ProviderFault,
    Say,
    ToolOffer,
    ToolResult,
    WordKind,
)
from wakeful.agents.tools.image import find_image
from wakeful.agents.tools.tool_set import ToolBox, read_arguments
from wakeful.core.agents import steps as work
from wakeful.core.agents.model_text import complete_usage, estimate_definition, estimate_entry, estimate_tokens
from wakeful.core.agents.turns import Answered, Entry, Image, Returned, ToolCall, ToolDefinition
from wakeful.core.spec.agent import AgentSpec

# The tool that asks a person. The loop itself handles it, and the run ends with the question.
ASK_PERSON = "ask_person"
HAND_OFF = "hand_off"
TODO = "todo"
# The pauses before the second and later attempts of a request to one model. If the provider asks for another pause,
# that is used.
PAUSES_SECONDS = (1.0, 4.0, 15.0)
LONGEST_PAUSE_SECONDS = 60.0
# Faults that another try cannot fix.
LASTING_FAULTS = ("key", "refused", "too_long")

ASK_PERSON_OFFER = ToolOffer(
    name=ASK_PERSON,
    description="Ask a person a question that you cannot answer yourself and must not guess. Your run stops here, and "
    "continues when the answer comes, which may take days.",
    parameters={
        "type": "object",
        "properties": {
            "question": {
                "type": "string",
                "description": "The whole question, with everything the person needs to know to answer it.",
            }
        },
        "required": ["question"],
        "additionalProperties": False,
    },
)


class Ending(Struct, frozen=True):
    """How the loop ended.

    - `words` is the recorded reason why the run stopped, or None if the agent is done.
    - `is_long`: the run is not over. Its conversation is too long and must be summarised first.
    - `refused_tokens` is the size that a provider refused as too long.
    - `is_limit`: a budget, a limit or a provider stopped the run in the middle of its work, and not a person.
    """

    words: str | None = None
    is_long: bool = False
    refused_tokens: int | None = None
    is_limit: bool = False


async def pause_before(seconds: float, fault: ProviderFault | None, pause: Callable[[float], Awaitable[Any]]) -> None:
    """Pause before the next attempt: `seconds`, or as long as the provider asked for with its last fault."""
    wanted = fault.retry_after if fault is not None and fault.retry_after is not None else seconds
    if wanted > 0:
        await pause(min(wanted, LONGEST_PAUSE_SECONDS))


class Record(Protocol):
    """Posts steps to the daemon, in their order. Each post has a number, so a repeated post is recorded only once."""

    def __call__(self, *steps: work.PostedStep) -> Awaitable[work.Recorded]:
        """Post steps. Returns when these steps and all earlier ones are on disk."""
        ...

    async def keep(self, content: bytes) -> str | None:
        """Store an image, and return the address by which records name it. None if the daemon refused the image.

        It refuses, for example, an image that contains a secret.
        """

    async def find(self, address: str) -> bytes | None:
        """Read an image that an earlier record of this conversation names. None if the image no longer exists."""

    async def tell(self, *steps: work.PostedStep) -> None:
        """Post steps without waiting for their record.

        If the daemon ends the run because of these steps, the next call that waits for its record returns that end.
        """


class RunEnded(Exception):
    """The daemon has ended this run: nothing more may be started."""

    def __init__(self, words: str, *, is_limit: bool = False) -> None:
        super().__init__(words)
        self.words = words
        self.is_limit = is_limit


class _Redacted(Exception):
    """The request was recorded but not sent, because the daemon removed the value of a secret from its conversation."""


class _TooLong(Exception):
    """The next request would be longer than the agent's limit, or the provider refused its size."""

    def __init__(self, refused_tokens: int | None = None) -> None:
        super().__init__()
        self.refused_tokens = refused_tokens


class _TextOnly:
    """Passes on only the text of answers, and no thoughts."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._show = say

    def begin(self, turn: int) -> Say:
        return self._hear

    async def settle(self) -> None:
        return None

    def _hear(self, text: str, kind: WordKind = "text") -> None:
        if kind == "text":
            self._show(text)


class Loop:
    """One run of an agent, from the present state of its conversation to the end."""

    def __init__(
        self,
        beginning: work.Beginning,
        models: Sequence[Model],
        tools: ToolBox,
        record: Record,
        say: Callable[[str], None],
        pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        most_tokens: int | None = None,
        hearing: Hearing | None = None,
    ) -> None:
        """Start with the conversation of `beginning`.

        `models` are those of the agent, in its order. `say` shows text as it comes. `most_tokens`, if given, lowers the
        agent's limit of tokens for one request. `hearing` receives the text of answers; by default `say` receives it.
        """
        self._beginning = beginning
        self._agent: AgentSpec = beginning.agent
        self._most_tokens = min(beginning.agent.window.compress_at, most_tokens or beginning.agent.window.compress_at)
        self._models = list(models)
        self._tools = tools
        self._may_ask = beginning.tools.get(ASK_PERSON) != "deny"
        self._take_offers()
        self._post = record
        self._say = say
        self._hearing: Hearing = hearing or _TextOnly(say)
        self._pause = pause
        self._entries: list[Entry] = []
        # Entries that are added when the pending calls of the last run are done.
        self._later = list(beginning.later)
        # The estimated tokens of all entries. The sum is kept, so that a turn does not count a long conversation again.
        self._size_tokens = 0
        for entry in beginning.entries:
            self._add(entry)
        self._turn = beginning.turns
        # The contents of the images that entries name, by address.
        self._images: dict[str, bytes] = {}
        # Steps that are posted together with the next one.
        self._unposted: list[work.PostedStep] = []
        self._repeated: tuple[str, str, int] = ("", "", 0)
        self.has_handed_off = beginning.has_handed_off
        # Has a model answered in this process?
        self.has_answered = False

    @property
    def entries(self) -> Sequence[Entry]:
        """The conversation so far, with the entries that are still to be added."""
        return (*self._entries, *self._later)

    @property
    def size_tokens(self) -> int:
        """The estimated size of the next request, in tokens."""
        return self._told_tokens + self._size_tokens + sum(map(estimate_entry, self._later))

    @property
    def turns(self) -> int:
        """The number of turns of this run, including those of earlier processes."""
        return self._turn

    @property
    def last_words(self) -> str:
        """The last text that the agent said."""
        said = (entry.text for entry in reversed(self._entries) if isinstance(entry, Answered) and entry.text)
        return next(said, "")

    async def run(self) -> Ending:
        try:
            await self._fetch_images()
            await self._carry_out_all(self._beginning.pending)
            while self._later:
                self._add(self._later.pop(0))
            if self._entries and isinstance(last := self._entries[-1], Answered):
                # The process was killed after the agent's last answer, so the agent is done.
                return await self._judge_stop(last)
            while True:
                answered = await self._ask()
                if not answered.calls:
                    await self._record()
                    return await self._judge_stop(answered)
                await self._carry_out_all(answered.calls)
        except _TooLong as found:
            try:
                await self._record()
            except RunEnded as ended:
                return Ending(ended.words, is_limit=ended.is_limit)
            return Ending(is_long=True, refused_tokens=found.refused_tokens)
        except RunEnded as ended:
            return Ending(ended.words, is_limit=ended.is_limit)

    def _take_offers(self) -> None:
        """Take over the present tools for the next request. They are recorded with it."""
        self._offers = (*self._tools.offers, ASK_PERSON_OFFER) if self._may_ask else self._tools.offers
        self._unrecorded = tuple(
            ToolDefinition(name=offer.name, description=offer.description, parameters=dict(offer.parameters))
            for offer in self._offers
        )
        # The estimated tokens of a request without the conversation.
        self._told_tokens = estimate_tokens(self._beginning.instructions) + sum(
            map(estimate_definition, self._unrecorded)
        )

    def _add(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._size_tokens += estimate_entry(entry)

    async def _record(self, *steps: work.PostedStep) -> bool:
        """Record the waiting steps, then these. Raises RunEnded if the daemon ends the run.

        Returns True if the daemon removed a secret from the conversation.
        """
        gathered = self._gather(steps)
        if not gathered:
            return False
        recorded = await self._post(*gathered)
        for step in recorded.redacted:
            self._take_over(step)
        if recorded.end is not None:
            raise RunEnded(recorded.end, is_limit=recorded.is_limit)
        return bool(recorded.redacted)

    def _take_over(self, step: work.SentStep) -> None:
        """Replace a text that contained the value of a secret by the text that was recorded.

        A post has at most one answer, and that is the last answer of the conversation.
        """
        places = range(len(self._entries) - 1, -1, -1)
        match step:
            case work.RecordAnswer(answer=recorded, purpose="work"):
                self._replace(next(place for place in places if isinstance(self._entries[place], Answered)), recorded)
            case work.RequestTurn(tools=tools) if tools:
                self._offers = tuple(
                    ToolOffer(name=tool.name, description=tool.description, parameters=tool.parameters)
                    for tool in tools
                )
            case work.ReturnTool(call=call):
                entry = Returned(call=call, name=step.name, text=step.text, is_error=step.is_error, images=step.images)
                self._replace(
                    next(
                        place
                        for place in places
                        if isinstance(found := self._entries[place], Returned) and found.call == call
                    ),
                    entry,
                )

    def _replace(self, place: int, entry: Entry) -> None:
        self._size_tokens += estimate_entry(entry) - estimate_entry(self._entries[place])
        self._entries[place] = entry

    async def _tell(self, step: work.PostedStep) -> None:
        """Post the waiting steps and this one, without waiting for their record.

        Until then, work must have no effect.
        """
        await self._post.tell(*self._gather((step,)))

    def _gather(self, steps: Sequence[work.PostedStep]) -> Sequence[work.PostedStep]:
        gathered, self._unposted = (*self._unposted, *steps), []
        return gathered

    @asynccontextmanager
    async def _recording(self, step: work.PostedStep) -> AsyncIterator[Awaitable[None]]:
        """Record a step in the background. The body must await the yielded task before its work takes effect."""
        recording = asyncio.create_task(self._record_unchanged(step), name="record a step")
        # Let the post begin first, because the next work may block the loop for milliseconds.
        await asyncio.sleep(0)
        try:
            yield recording
        except Exception:
            # Raise an error of the recording first, because the held-back request may then fail like a network fault.
            await recording
            raise
        finally:
            recording.cancel()

    async def _record_unchanged(self, step: work.PostedStep) -> None:
        """Record a step. Raises _Redacted if the record differs, because a prepared request must not be sent then."""
        if await self._record(step):
            raise _Redacted

    async def _halt(self, words: str) -> None:
        """Record why the run stops, and end it. Raises RunEnded."""
        await self._record(work.Halt(words=words))
        raise RunEnded(words, is_limit=True)

    # -- the model ----------------------------------------------------------------------------

    async def _ask(self) -> Answered:
        """Get the next answer from the model. It is recorded together with its first call."""
        if await self._tools.refresh():
            self._take_offers()
        request = self._make_request()
        if self._told_tokens + self._size_tokens > self._most_tokens:
            raise _TooLong
        self._turn += 1
        while True:
            fault = None
            for pause in (0.0, *PAUSES_SECONDS):
                await pause_before(pause, fault, self._pause)
                answer = await self._try(request)
                if not isinstance(answer, ProviderFault):
                    await self._hearing.settle()
                    usage = complete_usage(answer.usage, self._told_tokens + self._size_tokens, answer.answered)
                    self._add(answer.answered)
                    self.has_answered = True
                    self._unposted.append(work.RecordAnswer(turn=self._turn, answer=answer.answered, usage=usage))
                    return answer.answered
                fault = answer
                if fault.kind in LASTING_FAULTS:
                    break
            assert fault is not None
            if fault.kind == "refused" and self._images:
                # The provider may have refused an image. Try once more without images, or the conversation would be
                # stuck.
                self._images = {}
                request = self._make_request()
                continue
            if fault.kind == "too_long":
                raise _TooLong(self.size_tokens)
            if len(self._models) == 1:
                await self._halt(str(fault))
            # Use the agent's next model for the rest of this run.
            gone = self._models.pop(0)
            self._say(f"\n[{gone.name} does not answer; {self._models[0].name} continues]\n")

    async def _try(self, request: ModelRequest) -> ModelAnswer | ProviderFault:
        """Make one attempt: prepare the request while its record is written, and send it when the record is on disk."""
        model = self._models[0]
        step = work.RequestTurn(
            turn=self._turn,
            model=model.name,
            input_tokens=self._told_tokens + self._size_tokens,
            max_output_tokens=self._agent.settings.max_output_tokens,
            servers_down=self._tools.servers_down if self._unrecorded else (),
            tools=self._take_definitions(),
        )
        try:
            try:
                async with self._recording(step) as recorded:
                    return await model.answer(request, self._hearing.begin(self._turn), recorded)
            except _Redacted:
                return await model.answer(self._make_request(), self._hearing.begin(self._turn))
        except ProviderFault as fault:
            self._unposted.append(
                work.RecordFault(
                    turn=self._turn,
                    model=model.name,
                    fault=fault.kind,
                    words=str(fault),
                    usage=fault.count(step.input_tokens),
                )
            )
            return fault

    def _take_definitions(self) -> tuple[ToolDefinition, ...]:
        """Return the definitions of the tools for the record. Empty if the present definitions are already recorded."""
        definitions, self._unrecorded = self._unrecorded, ()
        return definitions

    def _make_request(self) -> ModelRequest:
        return ModelRequest(
            instructions=self._beginning.instructions,
            entries=self._entries,
            tools=self._offers,
            settings=self._agent.settings,
            images=self._images,
        )

    async def _judge_stop(self, answered: Answered) -> Ending:
        """Judge an answer without calls. Halts if the model ran into its limit or refused; else the agent is done."""
        match answered.stop:
            case "length":
                await self._halt(
                    f"{answered.model} reached its limit of {self._agent.settings.max_output_tokens} tokens; raise "
                    f"settings.max_output of agent {self._agent.name}"
                )
            case "refused":
                await self._halt(f"{answered.model} refused to answer: {answered.text or 'no reason given'}")
        return Ending()

    # -- calls of tools -----------------------------------------------------------------------

    async def _carry_out_all(self, calls: Sequence[ToolCall]) -> None:
        for call in calls:
            await self._guard_repeats(call)
            result = await self._carry_out(call)
            images = await self._keep_all(result.images)
            if len(images) < len(result.images):
                result = replace(
                    result, text=f"{result.text}\n[not every image is shown: the daemon did not store all]"
                )
            self._add(Returned(call=call.id, name=call.name, text=result.text, is_error=result.is_error, images=images))
            self._unposted.append(
                work.ReturnTool(
                    call=call.id,
                    name=call.name,
                    text=result.text,
                    is_error=result.is_error,
                    wrote=self._tools.take_written(call.id),
                    images=images,
                    around=result.around,
                )
            )
            self.has_handed_off = self.has_handed_off or (call.name == HAND_OFF and not result.is_error)

    async def _keep_all(self, contents: Sequence[bytes]) -> tuple[Image, ...]:
        """Store images with the daemon, before the record that names them. Refused images are left out."""
        images: list[Image] = []
        for content in contents:
            found, address = find_image(content), await self._post.keep(content)
            if found is not None and address is not None:
                images.append(Image(media_type=found.media_type, address=address, size_bytes=len(content)))
                self._images[address] = content
        return tuple(images)

    async def _fetch_images(self) -> None:
        """Read the images of a conversation that continues. Images that no longer exist are skipped."""
        for image in (image for entry in self._entries if isinstance(entry, Returned) for image in entry.images):
            if image.address not in self._images and (content := await self._post.find(image.address)) is not None:
                self._images[image.address] = content

    async def _guard_repeats(self, call: ToolCall) -> None:
        name, arguments, times = self._repeated
        times = times + 1 if (name, arguments) == (call.name, call.arguments) else 1
        self._repeated = (call.name, call.arguments, times)
        if times > self._agent.limits.repeats:
            await self._halt(
                f"it called {call.name} {times} times in a row with the same arguments (limits.repeats of agent "
                f"{self._agent.name})"
            )

    async def _carry_out(self, call: ToolCall) -> ToolResult:
        """Carry out a call, after recording it. Raises RunEnded if a person must be asked first."""
        if call.name == ASK_PERSON and self._may_ask:
            return await self._ask_person(call)
        policy = self._tools.policy_of(call.name)
        if policy == "deny":
            # `carry_out` does not run a denied tool. It only returns the reason.
            return await self._tools.carry_out(call)
        if policy == "ask":
            allowed = self._beginning.permissions.get(call.id)
            if allowed is None:
                await self._ask_permission(call)
            if not allowed:
                return ToolResult("a person was asked, and said no", is_error=True)
        self._say(f"\n[{call.name} {call.arguments}]\n")
        if self._tools.is_look(call.name):
            await self._tell(work.CallTool(call=call))
        else:
            await self._record(work.CallTool(call=call))
        return await self._tools.carry_out(call)

    async def _ask_person(self, call: ToolCall) -> ToolResult:
        arguments = read_arguments(call, ASK_PERSON_OFFER)
        if isinstance(arguments, ToolResult):
            return arguments
        question = arguments.get("question")
        if not isinstance(question, str) or not question.strip():
            return ToolResult("ask_person needs a question that is not empty", is_error=True)
        await self._record(work.AskPerson(call=call.id, name=call.name, text=question.strip()))
        raise RunEnded(question)

    async def _ask_permission(self, call: ToolCall) -> None:
        words = f"may it call {call.name} {call.arguments}?"
        await self._record(work.AskPerson(call=call.id, name=call.name, text=words, is_permission=True))
        raise RunEnded(words)
