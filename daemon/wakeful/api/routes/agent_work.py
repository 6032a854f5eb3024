"""The routes /work/…: the process of an agent's run fetches its conversation so far, and sends every step to be
recorded.

Only runs may call these routes, each for itself. A run's token does not reach other runs, and people have no access.
The answer to a step is sent when the step is on disk.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
from collections.abc import Awaitable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from wakeful.api.bodies import check_key, read_body, read_lines, take_key
from wakeful.api.contract import Service
from wakeful.api.gate.callers import Caller
from wakeful.api.live_answers import Said
from wakeful.api.operations.offered_tools import find_slow_servers
from wakeful.api.problems import Forbidden
from wakeful.api.requests import Handlers, answer_json, caller_of, service_of
from wakeful.api.routes.context import assemble_for, assemble_for_sub, drop_changed_raw
from wakeful.core.agents import steps as work
from wakeful.core.agents.turns import Answered, Asked, Returned, SubWork
from wakeful.core.calls import call_types as calls
from wakeful.core.deciding.acting_agent import find_hand_off_rule, merge_tools, narrow_for_sub
from wakeful.core.record.state import OpenRun, Session
from wakeful.core.spec.agent import AgentSpec, Skill, fit_window
from wakeful.errors import CallerError
from wakeful.history.conversation import GivenSummary, SummaryWithoutModel, choose_kept, make_compress
from wakeful.model_context.assemble import Assembled
from wakeful.model_context.project_rules import read_nested_rules
from wakeful.model_context.prompt_parts import Room
from wakeful.model_context.recorded_turns import has_handed_off
from wakeful.specs.prompt_file import digest_content
from wakeful.specs.skills import SKILL_FILE, strip_front_matter
from wakeful.specs.yaml_text import MAX_BYTES
from wakeful.system.blobs import DamagedBlob, SecretContent, UnknownBlob
from wakeful.system.openat2 import open_beneath

# The share of its allowed length that a conversation keeps when it is compressed.
KEPT_SHARE = 0.3
# The most tries to prepare a summary. A try fails if the log of the session grows meanwhile.
TRIES = 5
# The largest image that every provider accepts.
LARGEST_IMAGE_BYTES = 3_500_000
# The average number of bytes in a token of prose and code.
BYTES_PER_TOKEN = 3.5


class Posted(Struct, frozen=True, forbid_unknown_fields=True):
    """Steps that are recorded in one transaction.

    `key` is the idempotency key of these steps. A process of an earlier release sends it in the header instead.
    """

    steps: tuple[work.PostedStep, ...]
    key: str | None = None


T = TypeVar("T", bound=Struct)
_POSTED = msgspec.json.Decoder(Posted)


async def begin(request: Request) -> Response:
    """Assemble the prompt of a run, store it, record it, and return it."""
    service, caller = service_of(request), caller_of(request)
    session, run, agent = _find_run(service, caller)
    asked = _read_begin(await read_body(request))
    if agent.asks_window and asked.asks_window and asked.window is None:
        return answer_json({"window_of": agent.models[0], "silence_seconds": agent.limits.silence_seconds})
    if asked.window is not None and asked.window.tokens is not None:
        agent = fit_window(agent, asked.window.tokens)
    assembled = await assemble_for(service, session, agent)
    has_left = await asyncio.to_thread(has_handed_off, service.log, session, run)
    instructions, opening = await asyncio.to_thread(_keep, service, assembled)
    source = asked.window.source if asked.window is not None else None
    step = work.Assemble(
        agent=agent.name,
        model=agent.model_name,
        instructions=instructions,
        opening=opening,
        tokens=assembled.tokens,
        window_tokens=agent.window.tokens,
        window_source=source,
    )
    await _submit(service, caller, (step,), take_key(request, {}))
    failing = (
        await asyncio.to_thread(find_slow_servers, service.log, session, agent, service.moment().wall)
        if agent.mcp
        else ()
    )
    beginning = replace(
        _describe_beginning(session, run, agent, assembled, has_left), failing=failing, window=asked.window
    )
    return answer_json(
        replace(beginning, summary=service.redact(beginning.summary), memory=service.redact(beginning.memory))
    )


def _read_begin(body: bytes) -> work.Begin:
    try:
        return msgspec.json.decode(body or b"{}", type=work.Begin)
    except msgspec.MsgspecError as error:
        raise CallerError(f"the beginning is not valid: {error}") from None


async def read_rules(request: Request) -> Response:
    """GET /work/rules?folder=…: the project rules that apply to a folder, without those in the run's first prompt."""
    service, caller = service_of(request), caller_of(request)
    _, run, agent = _find_run(service, caller)
    folder, tokens = request.query_params.get("folder", "."), Room.of(agent).rules // 4
    return answer_json(await asyncio.to_thread(read_nested_rules, run.spec, run.causes, folder, tokens, service.redact))


async def read_skill(request: Request) -> Response:
    """GET /work/skill?name=…&file=…: a file of one of the agent's skills, if the file is unchanged since the run
    began."""
    service, caller = service_of(request), caller_of(request)
    _, _, agent = _find_run(service, caller)
    name, file = request.query_params.get("name", ""), request.query_params.get("file") or SKILL_FILE
    skill = next((one for one in agent.skills if one.name == name), None)
    if skill is None:
        raise CallerError(
            f"there is no skill {name[:100]!r}; the skills are {', '.join(one.name for one in agent.skills) or 'none'}"
        )
    if file not in skill.files:
        raise CallerError(f"skill {name} has no file {file[:100]!r}; its files are {', '.join(skill.files)}")
    return answer_json({"text": await asyncio.to_thread(_read_skill, skill, file)})


def _read_skill(skill: Skill, file: str) -> str:
    """Read a file of a skill. Blocking.

    Raises CallerError if the file was changed since the agent's spec was read. Any process may have written the new
    text, and nobody has trusted it.
    """
    try:
        with os.fdopen(open_beneath(skill.folder, file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise CallerError(f"{file} of skill {skill.name} cannot be read: {error.strerror}") from None
    if digest_content(content) != skill.files[file]:
        raise CallerError(
            f"{file} of skill {skill.name} was changed since this run began; go on without it: "
            "its new content counts from the next run on"
        )
    if b"\0" in content:
        raise CallerError(f"{file} of skill {skill.name} is binary: {len(content):,} bytes")
    if file != SKILL_FILE:
        return content.decode(errors="replace")
    others = [path for path in skill.files if path != SKILL_FILE]
    more = f"\n\n(Other files of this skill, which skill reads by their path: {', '.join(others)})" if others else ""
    return f"{strip_front_matter(content)}{more}"


class Delegated(Struct, frozen=True, forbid_unknown_fields=True):
    """A piece of work for a sub-agent: the tool call that it answers, the sub-agent, and the text of the work."""

    call: str
    agent: str
    text: str


async def begin_sub(request: Request) -> Response:
    """Assemble the prompt of a sub-agent, store it, record it, and return it. If the sub-agent has already begun this
    work, it continues where it stopped."""
    service, caller = service_of(request), caller_of(request)
    session, run, agent = _find_run(service, caller)
    given = await _read_as(request, Delegated, "the piece of work")
    member = agent.find_subagent(given.agent)
    if member is None:
        known = ", ".join(one.name for one in agent.team) or "none"
        raise CallerError(f"agent {agent.name} has no sub-agent {given.agent!r}; those it has: {known}")
    assembled = await assemble_for_sub(service, session, member, given.call, given.text)
    instructions, opening = await asyncio.to_thread(_keep, service, assembled)
    sub = SubWork(call=given.call, agent=member.name)
    step = work.Assemble(
        agent=member.name,
        model=member.model_name,
        instructions=instructions,
        opening=opening,
        tokens=assembled.tokens,
        sub=sub,
    )
    await _submit(service, caller, (step,), take_key(request, {}))
    beginning = _describe_beginning(session, run, member, assembled, False)
    answered = sum(isinstance(entry, Answered) for entry in assembled.entries)
    tools = narrow_for_sub(merge_tools(agent.tools, run.spec.tools), member)
    return answer_json(
        replace(
            beginning, hand_off="withheld", standing_hand_off=None, summary=None, memory={}, turns=answered, tools=tools
        )
    )


async def record_steps(request: Request) -> Response:
    """Record lines of steps, each as it arrives. The answer is sent when all of them are on disk.

    After a step that ends the run, no further line is recorded.
    """
    service, caller = service_of(request), caller_of(request)
    _find_run(service, caller)
    # The key in the header belongs to the first line, unless that line has a key of its own.
    key = take_key(request, {})
    recording: list[Awaitable[calls.Reply]] = []
    sub: SubWork | None = None
    redacted: list[work.SentStep] = []
    try:
        async for line in read_lines(request):
            _find_run(service, caller)
            if recording and _find_end(service, caller) is not None:
                break
            posted = _read_posted(line)
            sub = next(
                (step.sub for step in posted.steps if not isinstance(step, work.AskPerson | work.MeterTurn)), None
            )
            steps = tuple(_redact_step(service, _redact_page(service, step)) for step in posted.steps)
            redacted += (
                after
                for before, after in zip(posted.steps, steps, strict=True)
                if isinstance(after, work.SentStep) and after is not before and not _is_same_page(before, after)
            )
            recording.append(_submit(service, caller, steps, check_key(posted.key) or key))
            _close_turns(service, caller, steps)
            key = None
    except ClientDisconnect:
        # The run's process ended in the middle. The steps that it sent until then count. Nobody waits for an answer.
        return Response()
    finally:
        for recorded in recording:
            await recorded
    # The answer has the form of `work.Recorded`. Without the optional fields, it equals the answer of earlier releases.
    more: dict[str, Any] = {"is_limit": True} if _is_limit(service, caller) else {}
    if (sub_end := _find_sub_end(service, caller, sub)) is not None:
        more["sub_end"] = sub_end
    return answer_json({"end": _find_end(service, caller), **more, **({"redacted": redacted} if redacted else {})})


class Words(Struct, frozen=True, forbid_unknown_fields=True):
    words: tuple[Said, ...]


_WORDS = msgspec.json.Decoder(Words)


async def take_words(request: Request) -> Response:
    """Pass the text of an answer in progress to the clients that follow it now. Nothing is recorded."""
    service, caller = service_of(request), caller_of(request)
    session, run, _ = _find_run(service, caller)
    try:
        posted = _WORDS.decode(await read_body(request))
    except msgspec.MsgspecError as error:
        raise CallerError(f"the words are not valid: {error}") from None
    service.live_words.add(session.id, run.run, posted.words)
    return answer_json({})


def _close_turns(service: Service, caller: Caller, steps: tuple[work.PostedStep, ...]) -> None:
    assert caller.run is not None
    for step in steps:
        if isinstance(step, work.RecordAnswer):
            service.live_words.close_turn(caller.run.session_id, caller.run.run, step.turn)


def _redact_page(service: Service, step: work.PostedStep) -> work.PostedStep:
    """Redact a step that shows a page of a longer text. A secret that crosses the beginning or the end of the page is
    redacted, too."""
    if not isinstance(step, work.ReturnTool) or step.around is None:
        return step
    page, text = step.around, step.text
    shown = service.redact_part(page.before, text[page.start : page.end], page.after)
    return replace(step, text=f"{text[: page.start]}{shown}{text[page.end :]}", around=None)


def _is_same_page(before: work.PostedStep, after: work.SentStep) -> bool:
    """Was only `around` removed from the step? If so, the process already has this text, and needs no redacted copy."""
    return isinstance(before, work.ReturnTool) and replace(before, around=None) == after


def _redact_step(service: Service, step: work.PostedStep) -> work.PostedStep:
    """Return a step as it may be recorded: the same object, unless it contains the value of a secret."""
    kept: work.PostedStep = service.redact(step)
    if isinstance(step, work.RecordAnswer) and isinstance(kept, work.RecordAnswer):
        return step if kept is step else replace(kept, answer=drop_changed_raw(step.answer, kept.answer))
    return kept


def _read_posted(line: bytes) -> Posted:
    try:
        return _POSTED.decode(line)
    except msgspec.MsgspecError as error:
        raise CallerError(f"the steps are not valid: {error}") from None


async def _read_as(request: Request, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(await read_body(request), type=kind)
    except msgspec.MsgspecError as error:
        raise CallerError(f"{what} is not valid: {error}") from None


class Summary(Struct, frozen=True, forbid_unknown_fields=True):
    """The summary of a conversation, and the model that made it.

    `text` is empty if no model made a usable summary. A summary is then made without a model.

    `most_tokens` is the limit of a request, if the provider accepts less than the window of the agent."""

    text: str
    by: str
    most_tokens: int | None = None


async def compress(request: Request) -> Response:
    """Replace old conversation by a summary that the run's model made. The newest messages stay."""
    service, caller = service_of(request), caller_of(request)
    session, run, agent = _find_run(service, caller)
    summary = await _read_as(request, Summary, "the summary")
    summariser = GivenSummary(summary.by, summary.text) if summary.text else SummaryWithoutModel()
    taken = min(agent.window.compress_at, summary.most_tokens or agent.window.compress_at)
    most = int(taken * KEPT_SHARE * BYTES_PER_TOKEN)
    key = take_key(request, {})
    for _ in range(TRIES):
        keep = await asyncio.to_thread(choose_kept, service.log, session, most)
        made = await asyncio.to_thread(make_compress, service.log, service.core.state.get(session.id), keep, summariser)
        if made.at == service.core.state.get(session.id).seq:
            break
    reply = await service.call(made, author=caller.author, key=key, run=run.run)
    return answer_json({"words": reply.words, "summary": service.redact(made.summary)})


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a longer text, and the text before and after it."""

    text: str
    before: str = ""
    after: str = ""


async def redact(request: Request) -> Response:
    """Redact a text that a tool is about to cut. A secret that crosses the cut would not be found afterwards. Nothing
    is recorded or changed."""
    service = service_of(request)
    _find_run(service, caller_of(request))
    try:
        part = msgspec.json.decode(await read_body(request), type=Part)
    except msgspec.MsgspecError as error:
        raise CallerError(f"the text is not valid: {error}") from None
    return answer_json({"text": await asyncio.to_thread(service.redact_part, part.before, part.text, part.after)})


class KeptImage(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of an image. In JSON it is base64."""

    content: bytes


async def keep_image(request: Request) -> Response:
    """Store an image that a tool returned, before the record that names the image. The address of the image is a hash
    of its content, so storing it twice has no effect."""
    service, caller = service_of(request), caller_of(request)
    _find_run(service, caller)
    try:
        image = msgspec.json.decode(await read_body(request, LARGEST_IMAGE_BYTES * 2), type=KeptImage)
    except msgspec.MsgspecError as error:
        raise CallerError(f"the image is not valid: {error}") from None
    if len(image.content) > LARGEST_IMAGE_BYTES:
        raise CallerError(f"an image has at most {LARGEST_IMAGE_BYTES:,} bytes, and this has {len(image.content):,}")
    try:
        return answer_json({"address": await asyncio.to_thread(service.blobs.put, image.content)})
    except SecretContent as secret:
        raise CallerError(f"the image is not kept: {secret}") from None


async def read_image(request: Request) -> Response:
    """Return an image that the run's own conversation names. A run that continues an earlier run needs it."""
    service, caller = service_of(request), caller_of(request)
    session, _, agent = _find_run(service, caller)
    address = request.path_params["address"]
    assembled = await assemble_for(service, session, agent)
    if not any(
        isinstance(entry, Returned) and any(image.address == address for image in entry.images)
        for entry in assembled.entries
    ):
        raise Forbidden("no image of this conversation has that address")
    try:
        return answer_json(KeptImage(await asyncio.to_thread(service.blobs.get, address)))
    except (UnknownBlob, DamagedBlob) as gone:
        raise CallerError(str(gone)) from None


def _submit(service: Service, caller: Caller, steps: tuple[work.Step, ...], key: str | None) -> Awaitable[calls.Reply]:
    assert caller.run is not None
    made = calls.Work(name=caller.run.name, run=caller.run.run, steps=steps)
    return service.submit(made, author=caller.author, key=key, run=caller.run.run)


def _find_run(service: Service, caller: Caller) -> tuple[Session, OpenRun, AgentSpec]:
    if caller.run is None:
        raise Forbidden("this is for the process of an agent's run; to talk to a session use ask or send")
    session = service.core.state.get(caller.run.session_id)
    run = session.run
    if run is None or run.run != caller.run.run or run.agent is None:
        raise Forbidden(f"run {caller.run.run} of {session.name} is not an agent's run under way")
    return session, run, run.agent


def _find_sub_end(service: Service, caller: Caller, sub: SubWork | None) -> str | None:
    """Return the reason why a sub-agent must stop. None if it may go on."""
    assert caller.run is not None
    run = service.core.state.get(caller.run.session_id).run
    return run.progress.sub_halts.get(sub.call) if run is not None and sub is not None else None


def _find_end(service: Service, caller: Caller) -> str | None:
    """Return the reason why the run must begin no further step: it is over, it halted, or a person wants it to stop
    after the present step. None if it may go on."""
    assert caller.run is not None
    run = service.core.state.get(caller.run.session_id).run
    if run is None or run.run != caller.run.run:
        return "its run is over"
    if run.halt is not None:
        return run.halt.words
    return f"{run.stop.why} by {run.stop.by}" if run.stop is not None else None


def _is_limit(service: Service, caller: Caller) -> bool:
    """Did the run halt by itself, for example at a limit? False if a person stopped it, or if it asks a person."""
    assert caller.run is not None
    run = service.core.state.get(caller.run.session_id).run
    return (
        run is not None
        and run.run == caller.run.run
        and run.stop is None
        and run.halt is not None
        and run.halt.kind != "asking"
    )


def _keep(service: Service, assembled: Assembled) -> tuple[str, str | None]:
    """Store the instructions and the opening before the record that names them. Returns their addresses. Blocking."""
    opening = assembled.opening_text
    return service.blobs.put(assembled.instructions_text.encode()), service.blobs.put(
        opening.encode()
    ) if opening else None


def _describe_beginning(
    session: Session, run: OpenRun, agent: AgentSpec, assembled: Assembled, has_left: bool
) -> work.Beginning:
    spec = run.spec
    return work.Beginning(
        session=session.name,
        run=run.run,
        run_id=run.run_id,
        agent=agent,
        instructions=assembled.instructions_text,
        entries=assembled.entries,
        pending=assembled.pending,
        later=(*assembled.later, Asked(text=opening)) if (opening := assembled.opening_text) else assembled.later,
        permissions=assembled.permissions,
        is_long=assembled.is_cut or assembled.total_tokens > agent.window.compress_at,
        left_out=assembled.left_out,
        summary=session.knowledge.conversation.summary,
        objective=spec.objective,
        memory=session.knowledge.memory,
        hand_off=find_hand_off_rule(session, run),
        standing_hand_off=session.knowledge.handoff,
        has_handed_off=has_left,
        turns=run.progress.turns,
        tools=merge_tools(agent.tools, spec.tools),
        env=agent.outside.env | (spec.run.env if spec.run is not None else {}),
        root=spec.root,
        reads=tuple(binding.pattern for binding in spec.files),
        writes=spec.written_patterns,
        network=spec.confinement.ports,
        listens=spec.confinement.listened_ports,
        looks_up_names=spec.confinement.looks_up_names,
        allow_read=tuple(posixpath.join(spec.root, place) for place in spec.confinement.allow_read),
        allow_write=tuple(posixpath.join(spec.root, place) for place in spec.confinement.allow_write),
        secrets=(*spec.secrets, *((agent.outside.key,) if agent.outside.key is not None else ())),
        fetch=spec.fetch,
        is_unisolated=not spec.confinement.is_enforced,
    )


# Tried in this order. Agents use the first three in every turn.
HANDLERS: Handlers = {
    "POST /work/steps": record_steps,
    "POST /work/redact": redact,
    "POST /work/words": take_words,
    "POST /work/begin": begin,
    "GET /work/rules": read_rules,
    "GET /work/skill": read_skill,
    "POST /work/compress": compress,
    "POST /work/images": keep_image,
    "GET /work/images/{address}": read_image,
    "POST /work/subagent": begin_sub,
}
