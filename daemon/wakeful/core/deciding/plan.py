"""What the plan names and the reactor carries out: imperative, repeatable, harmless when done twice."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from wakeful.core.record.state import OpenRun, Session


class Look(Struct, frozen=True, kw_only=True):
    target: str
    generation: int
    # What the delta should start from: the last success, or the last seen commit.
    base: str | None = None
    # A file that is open for writing counts as it is: a run has ended, and what it left is asked for.
    takes_open: bool = False


class StartProcess(Struct, frozen=True, kw_only=True):
    session: str
    run: OpenRun


class StopProcess(Struct, frozen=True, kw_only=True):
    session: str
    run: OpenRun
    how: Literal["interrupt", "terminate"]


class RecoverRun(Struct, frozen=True, kw_only=True):
    session: str
    run: OpenRun


class LandOutputs(Struct, frozen=True, kw_only=True):
    session: str
    run: OpenRun


Action = StartProcess | StopProcess | RecoverRun | LandOutputs


def plan(session: Session, incarnation: str, attached: frozenset[str] | set[str]) -> list[Action]:
    run = session.run
    if run is None:
        return []
    # Whoever started it: it has succeeded, and landing twice is landing once (rule 27).
    if run.staged is not None:
        return [LandOutputs(session=session.id, run=run)]
    # Started by a daemon that is no more: nothing may be alive before the wake is tried again.
    if run.incarnation != incarnation:
        return [RecoverRun(session=session.id, run=run)]
    if run.run_id not in attached:
        return [StartProcess(session=session.id, run=run)]
    if run.stop is None:
        return []
    match run.stop.why:
        # A command's only safe point is its end (rule 24).
        case "suspend":
            return []
        case "interrupt" | "shutdown":
            return [StopProcess(session=session.id, run=run, how="interrupt")]
        case "replace" | "cancel" | "terminate":
            return [StopProcess(session=session.id, run=run, how="terminate")]
