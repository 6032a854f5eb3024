"""Answers `why`: sentences from the log and the core about a session, an output or an input.

Each answer has `words` for people, and for programs the values from which they were made. Sentences use only what was
recorded or looked at. If the log does not have the answer, they say so. `doctor` takes the words about the loop guard
(rule 34) from here, too. Nothing is escaped here: the printer does that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from wakeful.core.agents.turns import DownServer
from wakeful.core.deciding.acting_agent import find_acting
from wakeful.core.deciding.dispatch import gather_causes
from wakeful.core.deciding.loop_guard import AGENTS, COMMANDS, find_pause, name_binding
from wakeful.core.deciding.may_start import find_queue_words
from wakeful.core.deciding.working_state import Core
from wakeful.core.looking.targets import FileTarget
from wakeful.core.record.events import Cause
from wakeful.core.record.observations import Moment
from wakeful.core.record.state import DamagedSession, Session
from wakeful.core.spec.bindings import FileBinding
from wakeful.views.causes import say_waiting, view_causes, view_waiting
from wakeful.views.path_bindings import Reached, means_path
from wakeful.views.records import Recorded, say_cost, say_spent, view_runs
from wakeful.views.session_rows import FAILURES, list_row
from wakeful.views.times import say_shown, say_time, shorten, show_time, show_time_or_none
from wakeful.views.why_not import NextSlot, explain_no_wake, find_changed, find_next_slot, find_next_try

PATHS_SHOWN = 5
_PACED = "paced, "


def why_session(
    core: Core,
    session: Session,
    moment: Moment,
    problem: str | None = None,
    hint: str | None = None,
    down: tuple[DownServer, ...] = (),
) -> dict[str, Any]:
    """Explain why a session ran last, and why it does or does not run now.

    `problem` is the error in its file. `hint` says what its last run was denied. `down` are the MCP servers that its
    last run had to do without.
    """
    row = list_row(core, session, moment)
    last = _say_last_run(core, session)
    next_try = find_next_try(core, session, moment)
    now = [
        _say_state(row),
        *_say_problem(problem),
        *_say_unseen(core, session, row),
        *_say_now(core, session, moment, row),
        *say_waiting(session),
        *say_guard(core, session, moment),
    ]
    slot = find_next_slot(core, session)
    now += _say_next(session, next_try, slot)
    # People usually ask because of a failure, so it comes first, with advice.
    words = [*last, *say_hint(hint), _say_what_to_do(session.name), *now] if has_failed(session) else [*now, *last]
    words += [f"{one.words}." for one in down]
    return {
        "about": "session",
        "name": session.name,
        "state": row["state"],
        "reason": row["reason"],
        "queued": row["queued"],
        "owed": row["owed"],
        "changed": [bound.name for bound in find_changed(core, session)],
        "next_try": show_time_or_none(next_try),
        "next_slot": {"binding": slot.binding, "at": show_time(slot.at)} if slot is not None else None,
        "last_run": row["last_run"],
        "hint": hint,
        "servers_down": view_down(down),
        "wake_causes": view_causes(session.wake.causes) if session.wake is not None else [],
        "deliveries": view_waiting(session),
        "words": words,
    }


def view_down(down: Iterable[DownServer]) -> list[dict[str, str]]:
    return [{"name": one.name, "words": one.words} for one in down]


def _say_next(session: Session, next_try: int | None, slot: NextSlot | None) -> list[str]:
    """Name the moment at which a session goes on by itself: its next try, or the next slot that would wake it."""
    if next_try is not None and session.hold is not None:
        if session.hold.kind == "asking":
            return [f"Without an answer it is denied at {say_time(next_try)}."]
        return [f"It goes on by itself at {say_time(next_try)}."]
    if next_try is not None:
        return [f"Its next try is at {say_time(next_try)}."]
    return [f"Its next slot is at {say_time(slot.at)} ({slot.binding})."] if slot is not None else []


def _say_state(row: dict[str, Any]) -> str:
    reason = f": {row['reason']}" if row["reason"] else ""
    return f"{row['name']} is {row['state']}{reason}."


def _say_now(core: Core, session: Session, moment: Moment, row: dict[str, Any]) -> list[str]:
    if session.is_terminated:
        return [f"It is closed for good; `wakeful open {session.name} --again` reopens it."]
    if session.spec is None or (session.spec.run is None and session.run is None and session.wake is None):
        return ["Its spec has no `run`: it is only for conversations, and runs only to answer a message."]
    if session.run is not None:
        woken_by = describe_causes(session.run.causes)
        follow_up = (
            " Something newer came meanwhile: it runs once more." if session.wake is None and row["owed"] else ""
        )
        return [
            (
                f"Run {session.run.run} is under way since {say_time(session.run.started_at)}, woken by "
                f"{woken_by}.{_say_outlived(session.run.daemons)}{follow_up}"
            )
        ]
    if session.wake is not None:
        # The state has already given the reason for the hold, in the same words.
        waits = [f"It does not run yet: {row['queued']}."] if row["queued"] != row["reason"] else []
        # If a wake waits for its time, its later causes are not yet recorded.
        causes = (
            gather_causes(core, session, moment.wall)[0]
            if session.is_armed and session.id in core.looked.bounds
            else session.wake.causes
        )
        return [f"It is owed a run, woken by {describe_causes(causes)}.", *waits]
    if row["queued"]:
        return [f"It waits: {row['queued']}."]
    if isinstance(session, DamagedSession):
        return ["Its bindings are not looked at, because it cannot run."]
    if not session.is_shut and (said := explain_no_wake(core, session, moment, row)):
        return said
    if has_failed(session):
        return ["Nothing newer came since that run; it runs by itself when something it waits for changes."]
    if any(session.marks.seen[key] != good for key, good in session.marks.good.items() if key in session.marks.seen):
        return [
            (
                "Nothing newer came since its last run, which was stopped; "
                f"`wakeful activate {session.name}` runs it again."
            )
        ]
    return ["Nothing it waits for has changed since its last run saw it."]


def has_failed(session: Session) -> bool:
    """Did the last run fail? False if the session runs again or is terminated."""
    last = session.last_run
    return last is not None and last.outcome in FAILURES and session.run is None and not session.is_terminated


def say_hint(hint: str | None) -> list[str]:
    return [f"{hint[:1].upper()}{hint[1:]}."] if hint else []


def _say_what_to_do(name: str) -> str:
    return f"`wakeful output {name}` shows what it printed, `wakeful activate {name}` runs it again."


def _say_problem(problem: str | None) -> list[str]:
    return (
        [f"Its file is refused, and its last good version stays in force: {'; and '.join(problem.splitlines())}."]
        if problem
        else []
    )


def _say_unseen(core: Core, session: Session, row: dict[str, Any]) -> list[str]:
    """List the bindings that cannot be looked at, so that their changes would go unnoticed. A binding that is already
    the reason why the wake waits is left out.
    """
    looks = ((bound, core.looked.target(bound)) for bound in core.looked.bounds.get(session.id, ()))
    unseen = [f"cannot see {bound.name}: {look.problem}" for bound, look in looks if look is not None and look.problem]
    return [f"It {words}." for words in unseen if words != row["queued"]]


def _say_last_run(core: Core, session: Session) -> list[str]:
    last = session.last_run
    if last is None:
        return ["It has not run yet."] if session.run is None else []
    reason = f" ({last.reason})" if last.reason else ""
    words = [
        (
            f"Run {last.run} {last.outcome}{reason} at {say_time(last.finished_at)}; it was woken by "
            f"{describe_causes(last.causes)}.{_say_outlived(last.daemons)}"
        )
    ]
    chain = name_chain(core, last.chain)
    words += [f"It took {say_spent(msgspec.to_builtins(last.usage))}."] if last.usage.tokens else []
    return words + ([f"The runs that led to it: {' -> '.join([*chain, session.name])}."] if chain else [])


def _say_outlived(daemons: int) -> str:
    match daemons:
        case 1:
            return ""
        case 2:
            return " It outlived the daemon that started it."
    return f" It outlived {daemons - 1} daemons."


def name_chain(core: Core, chain: Iterable[str]) -> list[str]:
    return [core.state.get(one).name if one in core.state.sessions else one for one in chain]


def describe_causes(causes: tuple[Cause, ...]) -> str:
    return "; ".join(describe_cause(cause) for cause in causes) or "nothing recorded"


def describe_cause(cause: Cause) -> str:
    match cause.kind:
        case "first":
            return "first sight"
        case "activation":
            return "an activation" + (f" ({cause.reason})" if cause.reason else "")
        case "webhook":
            first, last = int(cause.old or "0") + 1, int(cause.new or "0")
            return f"{cause.binding} (webhook): " + (
                f"delivery {last}" if first >= last else f"deliveries {first} to {last}"
            )
    words = f"{cause.binding} ({cause.kind})"
    if cause.reason:
        words += f", {cause.reason}"
    if cause.paths:
        shown = ", ".join(f"{path.path} {path.change}" for path in cause.paths[:PATHS_SHOWN])
        rest = len(cause.paths) - PATHS_SHOWN
        words += f": {shown}" + (f" and {rest} more" if rest > 0 else "")
    elif cause.old and cause.old == cause.new:
        # The input changed and changed back, and a run in between failed.
        words += f": {shorten(cause.new)} again"
    elif cause.old or cause.new:
        words += f": {shorten(cause.old)} -> {shorten(cause.new)}"
    if cause.commits:
        words += f", by {cause.commits[-1]}"
    return words


class FileWriter(Struct, frozen=True, kw_only=True):
    """The writer of one file of an output, found in the records of files. If `run` is None, it is the rewind or merge
    of record `seq`.

    `is_drifted` means that the file has been changed since, by something other than the session.
    """

    seq: int
    run: int | None = None
    is_removed: bool = False
    is_drifted: bool = False


def why_output(
    core: Core, path: str, writer: Reached, records_newest_first: Iterable[Recorded], file: FileWriter | None = None
) -> dict[str, Any]:
    """Explain which run wrote an output and what woke that run, or which rewind or merge wrote it (rule 44).

    `file` is the writer of this single file. Without it, the answer names the run that left the whole output in its
    present state.
    """
    session, binding = writer
    records = list(records_newest_first)
    # A rewind or merge gave this file back. Runs since may have written other files of the output.
    given = file if file is not None and file.run is None else None
    since, call, before = _split_at_call(records, binding, given.seq if given is not None else None)
    now = find_version(core, session, binding.name)
    words = [f"{session.name} writes it, by its binding {binding.name} ({binding.pattern})."]
    answer: dict[str, Any] = {
        "about": "output",
        "path": path,
        "session": session.name,
        "binding": binding.name,
        "version": now,
    }
    of_file = next(
        (
            run
            for run in view_runs(records, most=1_000_000)
            if file is not None and run["run"] == file.run and "outcome" in run
        ),
        None,
    )
    if of_file is not None and file is not None:
        return answer | _tell_run_of_file(core, session, words, of_file, file, view_runs(records, most=1))
    wrote = _list_writing(since, binding)
    run = _find_author(wrote, binding.name)
    if call is not None and (run is None or given is not None):
        said = _say_call(call, _find_author(_list_writing(before, binding), binding.name), binding)
        if given is not None:
            drift, said = given.is_drifted, [*said, *_say_later(view_runs(since, most=1)), *_say_file_drift(given)]
        else:
            drift, said = now is not None and now != call["version"], [*said, *_say_drift(now, call["version"])]
        return {**answer, "run": None, "call": call, "drift": drift, "words": [*words, *said]}
    if run is None:
        return {**answer, "run": None, "words": [*words, "No recorded run wrote it yet."]}
    left = run["written"][binding.name]
    words.append(f"Run {run['run']} left it as {shorten(left)} at {say_shown(run['finished_at'])} ({run['outcome']}).")
    later = _say_later(wrote[:1]) if wrote[0] is not run else []
    words += [*_say_run_behind(core, session, run, later), *_say_drift(now, left)]
    return {
        **answer,
        "run": run,
        "chain": name_chain(core, run["chain"]),
        "drift": now is not None and now != left,
        "words": words,
    }


def _tell_run_of_file(
    core: Core, session: Session, words: list[str], run: dict[str, Any], file: FileWriter, newest: list[dict[str, Any]]
) -> dict[str, Any]:
    did = "removed" if file.is_removed else "wrote"
    words = [*words, f"Run {run['run']} {did} this file at {say_shown(run['finished_at'])} ({run['outcome']})."]
    later = _say_later([one for one in newest if one["run"] > run["run"]])
    words += [*_say_run_behind(core, session, run, later), *_say_file_drift(file)]
    return {"run": run, "chain": name_chain(core, run["chain"]), "drift": file.is_drifted, "words": words}


def _say_later(newest: list[dict[str, Any]]) -> list[str]:
    return [f"Later runs, up to run {run['run']}, left it unchanged." for run in newest]


def _say_file_drift(file: FileWriter) -> list[str]:
    return ["It was changed since by somebody else."] if file.is_drifted else []


def _say_run_behind(core: Core, session: Session, run: dict[str, Any], later: list[str]) -> list[str]:
    """Describe the run that wrote the file: its causes, later runs, the chain that led to it, the versions that it saw,
    and its cost.
    """
    causes = msgspec.convert([_drop_at(cause) for cause in run["causes"]], tuple[Cause, ...])
    chain = name_chain(core, run["chain"])
    led = [f"The runs that led to it: {' -> '.join([*chain, session.name])}."] if chain else []
    return [
        f"That run was woken by {describe_causes(causes)}.",
        *later,
        *led,
        *_say_versions(session, run["versions"]),
        f"It cost {say_cost(run['usage'], run['subagents'])}.",
    ]


def _split_at_call(
    newest_first: list[Recorded], binding: FileBinding, position: int | None
) -> tuple[list[Recorded], dict[str, Any] | None, list[Recorded]]:
    """Find the newest rewind or merge that wrote an output, or the one at a position.

    Returns the records after it, the call itself, and the records before it. If there is no such call, all records
    count as records after it.
    """
    for place, record in enumerate(newest_first):
        payload = (
            msgspec.json.decode(record.payload)
            if record.kind == "outputs_adopted" and record.payload is not None
            else {}
        )
        version = payload.get("versions", {}).get(binding.identity)
        if version is not None and position in (None, payload["position"]):
            call = {
                "by": payload["by"],
                "seq": payload["position"],
                "author": record.author,
                "at": show_time_or_none(record.at),
                "version": version,
            }
            return newest_first[:place], call, newest_first[place + 1 :]
    return newest_first, None, []


def _list_writing(newest_first: list[Recorded], binding: FileBinding) -> list[dict[str, Any]]:
    """List the runs that wrote an output, newest first."""
    return [run for run in view_runs(newest_first, most=1_000_000) if binding.name in run.get("written", {})]


def _say_call(call: dict[str, Any], run: dict[str, Any] | None, binding: FileBinding) -> list[str]:
    by = call["by"][:1].upper() + call["by"][1:]
    said = (
        f"{by}, asked for by {call['author']} (record {call['seq']}), "
        f"left it as {shorten(call['version'])} at {say_shown(call['at'])}."
    )
    return (
        [said]
        if run is None
        else [said, f"Before that, run {run['run']} had left it as {shorten(run['written'][binding.name])}."]
    )


def _say_drift(now: str | None, left: str) -> list[str]:
    return (
        [f"It was changed since by somebody else: it is {shorten(now)} now."] if now is not None and now != left else []
    )


def _drop_at(cause: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in cause.items() if key != "at"}


def _find_author(wrote_newest_first: list[dict[str, Any]], binding: str) -> dict[str, Any] | None:
    """Find the run that first wrote the present content. Later runs only wrote the same content again."""
    author = None
    for run in wrote_newest_first:
        if author is not None and run["written"][binding] != author["written"][binding]:
            break
        author = run
    return author


def _say_versions(session: Session, versions: dict[str, str]) -> list[str]:
    spec = session.spec
    if spec is None:
        return []
    read = (binding for binding in spec.bindings if getattr(binding, "access", "read") != "write")
    named = [(binding.name, versions[binding.identity]) for binding in read if binding.identity in versions]
    return [f"It saw {', '.join(f'{name} {shorten(version)}' for name, version in named)}."] if named else []


def find_version(core: Core, session: Session, binding: str) -> str | None:
    """Find the version from the last look at a binding. None if it has none."""
    for bound in core.looked.bounds.get(session.id, ()):
        if bound.name == binding:
            look = core.looked.target(bound)
            return look.version if look is not None else None
    return None


def find_last_change(core: Core, path: str) -> dict[str, Any] | None:
    """Find the newest look that found this path changed, of all targets that cover the path. None if no such look is
    remembered.
    """
    newest = None
    for look in core.looked.targets.values():
        target = look.target
        if not isinstance(target, FileTarget) or not means_path(target.pattern, target.root, path):
            continue
        below = path[len(target.root.rstrip("/")) + 1 :]
        for step in look.steps:
            change = next((one.change for one in step.changes if one.path in (path, below)), None)
            if change is not None and (newest is None or step.at > newest[0]):
                newest = (step.at, change)
    return None if newest is None else {"at": show_time_or_none(newest[0]), "change": newest[1]}


def say_guard(core: Core, session: Session, moment: Moment) -> list[str]:
    """Describe how the loop guard slows down or stops a session now. Empty if it does neither."""
    hold = session.hold
    if hold is not None and hold.kind == "loop":
        name = session.name
        return [
            (
                f"`wakeful resume {name}` lets it go on. If its run writes the files that wake it, bind them with "
                "`access: write`, or exclude them."
            )
        ]
    queued = find_queue_words(core, session, moment) if session.wake is not None else None
    if queued is None or not queued.startswith(_PACED):
        return []
    pause = find_pause(session)
    if pause is not None:
        bound = name_binding(core, session, (pause.key,))
        return [
            (
                f"wakeful waits to see whether {bound} changes while nothing runs: if it does not, "
                "the run itself changes its input. Bind the files that it writes with `access: write`, or exclude them."
            )
        ]
    is_agent = find_acting(core, session)[0] is not None
    limit, kind = (AGENTS, "an agent") if is_agent else (COMMANDS, "a command")
    free = f"Its changes come faster than {kind} may start, which is {limit.starts_a_minute} times a minute."
    return [
        f"{free} Changes collect meanwhile, and the next start sees the newest.",
        "A longer `settle` of the binding, or a `pace` in its spec, makes it calmer.",
    ]


def view_guarded(core: Core, moment: Moment) -> list[dict[str, Any]]:
    """View the sessions that the loop guard slows down or has stopped, for `doctor`."""
    found = []
    for session in sorted(core.state, key=lambda one: one.name):
        if session.wake is None or session.run is not None:
            continue
        is_stopped = session.hold is not None and session.hold.kind == "loop"
        words = (
            session.hold.words if session.hold is not None and is_stopped else find_queue_words(core, session, moment)
        )
        if words is not None and (is_stopped or words.startswith(_PACED)):
            found.append({"session": session.name, "words": words, "is_stopped": is_stopped})
    return found
