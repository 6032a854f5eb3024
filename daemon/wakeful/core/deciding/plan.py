"""The plan of a session: the actions that follow from its state. The reactor carries them out. All are idempotent."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from wakeful.core.record.state import OpenRun, Session


class Look(Struct, frozen=True, kw_only=True):
    target: str
    generation: int
    # The version the delta should start from: the last success, or the last seen commit.
    base: str | None = None
    # The look is at the outputs of an ended run, so a file that is still open for writing counts as it is.
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
    # The run has succeeded, whichever daemon started it. Landing is idempotent (rule 27).
    if run.staged is not None:
        return [LandOutputs(session=session.id, run=run)]
    # An earlier daemon started the run. None of its processes may be alive when the wake is tried again.
    if run.incarnation != incarnation:
        return [RecoverRun(session=session.id, run=run)]
    if run.run_id not in attached:
        return [StartProcess(session=session.id, run=run)]
    if run.stop is None:
        return []
    match run.stop.why:
        # A command can be suspended only at its end (rule 24).
        case "suspend":
            return []
        case "interrupt" | "shutdown":
            return [StopProcess(session=session.id, run=run, how="interrupt")]
        case "replace" | "cancel" | "terminate":
            return [StopProcess(session=session.id, run=run, how="terminate")]
