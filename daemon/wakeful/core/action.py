"""What the plan names and the reactor carries out: imperative, repeatable, harmless when done twice."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from wakeful.core.state import OpenRun


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
