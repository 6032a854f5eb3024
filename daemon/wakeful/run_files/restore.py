"""Undoes what a session's runs wrote to files: `rewind --files`.

`plan_restore` returns, path by path, what would be done. `carry_out` does it and returns what was done. Only a path
that one of the undone runs changed is restored, to what the first of these runs found. A file that others changed since
is left alone unless forced; then its content is first kept as a blob. Both functions block and are called in a thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wakeful.errors import WakefulError
from wakeful.run_files.file_record import GONE, BindingFiles, Entry, Found, RunFiles, read_record
from wakeful.run_files.path_lists import read_entries
from wakeful.run_files.present_files import PathBlocked, look_at, read_content, remove_file, write_file, write_link
from wakeful.system.blobs import Blobs, DamagedBlob, UnknownBlob, address_of

# The action in the plan, and its result: `restore` -> `restored`.
Action = Literal["restore", "remove", "same", "refuse", "cannot"]
Ending = Literal["restored", "removed", "same", "refused", "failed"]
# The largest file of others that is overwritten by force. Its content is held in memory to keep it first.
LARGEST_FORCED_BYTES = 64 << 20


class Step(Struct, frozen=True, kw_only=True):
    """The step for one path. `reason` tells why it is refused or cannot be done."""

    path: str
    # The path for system calls, because names need not be text.
    name: str
    action: Action
    reason: str | None = None
    # The number of the last run that changed the path, or a description of another write of the session.
    run: int | str
    # The content to restore, and the content that was there when the plan was made. None if there is no file.
    wanted: Entry | None = None
    present: Entry | None = None


class Restore(Struct, frozen=True, kw_only=True):
    """The plan to undo runs. `unrecorded` are runs whose files are not recorded: their files stay as they are."""

    root: str
    steps: tuple[Step, ...]
    unrecorded: tuple[int | str, ...] = ()


class Done(Struct, frozen=True, kw_only=True):
    """The result of one step. `kept` is the blob of the content that was overwritten by force."""

    path: str
    ending: Ending
    reason: str | None = None
    kept: str | None = None


class _Trace(Struct):
    """The history of one path: what the first run with this path found, and what the last run that changed it left."""

    wanted: Entry | None
    left: Entry | None = None
    run: int | str = 0
    is_changed: bool = False


def plan_restore(blobs: Blobs, root: str, runs: Iterable[tuple[int | str, str | None]]) -> Restore:
    """Plan to undo these runs.

    `runs` holds the runs, oldest first, each with the `files` of its `run_finished`. A merge is a write like any other
    (rule 44): it comes with a description instead of a number, and with the `record` of its event.
    """
    traces: dict[str, _Trace] = {}
    unrecorded = []
    for run, address in runs:
        try:
            written = _read_written(blobs, address)
        except (UnknownBlob, DamagedBlob):
            # The record was erased, or lost in a power cut just after the run. The plan lists the run as unrecorded.
            written = None
        if written is None:
            unrecorded.append(run)
        else:
            _follow(traces, run, written)
    changed = sorted((name, trace) for name, trace in traces.items() if trace.is_changed)
    return Restore(
        root=root,
        steps=tuple(_judge(blobs, root, name, trace) for name, trace in changed),
        unrecorded=tuple(unrecorded),
    )


def keep_record(blobs: Blobs, plan: Restore, *, is_forced: bool) -> str | None:
    """Store what a plan will change, in the form of a run's record, so that a later rewind can undo it.

    Returns the address of the record; None if nothing will be changed.
    """
    actions = ("restore", "remove", "refuse") if is_forced else ("restore", "remove")
    steps = [step for step in plan.steps if step.action in actions]
    if not steps:
        return None
    before, after = (
        [entry for entry in entries if entry is not None]
        for entries in ((s.present for s in steps), (s.wanted for s in steps))
    )
    written = BindingFiles(
        name="rewound", access="write", before=Found(entries=tuple(before)), after=Found(entries=tuple(after))
    )
    address = blobs.add(msgspec.json.encode(RunFiles(run_id="rewind", root=plan.root, bindings=(written,))))
    blobs.flush([address])
    return address


def carry_out(blobs: Blobs, plan: Restore, *, is_forced: bool = False) -> list[Done]:
    """Carry out every step. A step that fails is reported, and the others go on."""
    return [_do(blobs, plan.root, step, is_forced) for step in plan.steps]


_Written = tuple[dict[str, Entry], dict[str, Entry], bool]


def _read_written(blobs: Blobs, address: str | None) -> list[_Written] | None:
    """Return for each written binding the files that the run found and left, and whether the found files are stale.

    None if the run has no record.
    """
    if address is None:
        return None
    found = []
    for binding in read_record(blobs, address).bindings:
        if binding.is_written and binding.after is not None:
            before, after = (
                {entry.name: entry for entry in read_entries(blobs, side)} for side in (binding.before, binding.after)
            )
            found.append((before, after, binding.before is not None and binding.before.is_stale))
    return found


def _follow(traces: dict[str, _Trace], run: int | str, written: list[_Written]) -> None:
    for before, after, is_stale in written:
        for name in before.keys() | after.keys():
            found, left = before.get(name), after.get(name)
            trace = traces.setdefault(name, _Trace(_make_unknown_entry(name) if is_stale else found))
            if not is_same(found, left):
                trace.left, trace.run, trace.is_changed = left, run, True


def _make_unknown_entry(name: str) -> Entry:
    """Return an entry for a path that may or may not have had a file before the run."""
    return Entry(path=show_name(name), kind="?", not_kept="others changed files there just before the run")


def _judge(blobs: Blobs, root: str, name: str, trace: _Trace) -> Step:
    """Decide the step for one path. The first case that applies decides."""
    step = Step(path=show_name(name), name=name, action="same", run=trace.run, wanted=trace.wanted)
    try:
        present = look_at(root, name)
    except (PathBlocked, OSError) as problem:
        return replace(step, action="cannot", reason=say_problem(problem))
    step = replace(step, present=present)
    wanted = trace.wanted
    if is_same(present, wanted):
        return step
    if wanted is not None and (reason := _find_obstacle(blobs, wanted)) is not None:
        return replace(step, action="cannot", reason=reason)
    if present is not None and present.kind not in "fxl":
        return replace(step, action="cannot", reason="it is not a file now")
    if not is_same(present, trace.left):
        what = "removed" if present is None else "changed"
        return replace(step, action="refuse", reason=f"{what} by others since {say_write(trace.run)}")
    return replace(step, action="remove" if wanted is None else "restore")


def _find_obstacle(blobs: Blobs, wanted: Entry) -> str | None:
    """Describe why this content is not available. None if it is available.

    A content that this run could not keep may have been kept by another run.
    """
    if wanted.kind == "l":
        return None if wanted.link is not None and "\\x" not in wanted.link else "not kept: the target of the link"
    if wanted.kind not in ("f", "x"):
        return f"not kept: {wanted.not_kept or 'it was not a file'}"
    if wanted.digest and blobs.is_kept(address_of(bytes.fromhex(wanted.digest))):
        return None
    return f"not kept: {wanted.not_kept or GONE}"


def _do(blobs: Blobs, root: str, step: Step, is_forced: bool) -> Done:
    match step.action:
        case "same":
            return Done(path=step.path, ending="same")
        case "cannot":
            return Done(path=step.path, ending="failed", reason=step.reason)
        case "refuse" if not is_forced:
            return Done(path=step.path, ending="refused", reason=step.reason)
    try:
        # The plan is valid only for the content that it saw, and the file may have changed since.
        if not is_same(look_at(root, step.name), step.present):
            return Done(path=step.path, ending="refused", reason="changed just now; look at it and try again")
        kept = _keep_theirs(blobs, root, step) if step.action == "refuse" else None
        _put_back(blobs, root, step)
    except (PathBlocked, OSError, WakefulError) as problem:
        return Done(path=step.path, ending="failed", reason=say_problem(problem))
    return Done(path=step.path, ending="removed" if step.wanted is None else "restored", kept=kept)


def _keep_theirs(blobs: Blobs, root: str, step: Step) -> str | None:
    if step.present is None or step.present.kind == "l":
        return None
    if step.present.size > LARGEST_FORCED_BYTES:
        raise PathBlocked(
            f"the file there has {step.present.size} bytes, too many to keep a copy before it is overwritten; "
            "move it away first"
        )
    address = blobs.add(read_content(root, step.name))
    blobs.flush()
    return address


def _put_back(blobs: Blobs, root: str, step: Step) -> None:
    wanted = step.wanted
    if wanted is None:
        remove_file(root, step.name)
    elif wanted.kind == "l":
        assert wanted.link is not None
        write_link(root, step.name, wanted.link)
    else:
        content = blobs.get(address_of(bytes.fromhex(wanted.digest)))
        write_file(root, step.name, content, wanted.mode, is_flushed=True)


def say_write(run: int | str) -> str:
    return run if isinstance(run, str) else f"run {run}"


def is_same(one: Entry | None, other: Entry | None) -> bool:
    """Are both entries the same for a reader? For links only the target counts: the file behind it is not ours."""
    if one is None or other is None:
        return one is other
    if one.kind == "l" and other.kind == "l":
        return one.link == other.link
    return (one.kind, one.digest) == (other.kind, other.digest)


def view_restore(plan: Restore) -> dict[str, Any]:
    """Convert a plan to JSON values, for `--dry-run`."""
    steps = [{"path": step.path, "action": step.action, "reason": step.reason, "run": step.run} for step in plan.steps]
    return {"root": plan.root, "steps": steps, "unrecorded": list(plan.unrecorded)}


def view_done(done: Iterable[Done]) -> list[dict[str, Any]]:
    return [{"path": one.path, "ending": one.ending, "reason": one.reason, "kept": one.kept} for one in done]


def show_name(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def say_problem(problem: Exception) -> str:
    return problem.strerror or str(problem) if isinstance(problem, OSError) else str(problem)
