"""The outputs of a run: how they are put in place, and whose changes they are.

- Landing (rule 27): outputs that a run made in a private write area are put in place after its success is certain, and
  before the success is recorded. `run_end` stages them when the process has ended. The plan then contains `LandOutputs`
  until they are in place, and after that the run ends as any other. The event `outputs_staged` holds all that landing
  needs, so the next daemon can continue after a crash.
- Attribution (rule 28): if an agent writes only through our tools, each of its writes is on record, so every other
  change is by others. The writes of a program cannot be attributed, and staged outputs need no attribution.
"""

from __future__ import annotations

from typing import Literal

from wakeful.core.agents.steps import OwnFile
from wakeful.core.deciding.acting_agent import find_unattributed_writer
from wakeful.core.deciding.decision import Decision
from wakeful.core.deciding.working_state import Core
from wakeful.core.looking.observed_state import TargetLook
from wakeful.core.looking.patterns import parse_under
from wakeful.core.record import events as ev
from wakeful.core.record.observations import KeptOutput, PathChange, ProcessEnded
from wakeful.core.record.state import OpenRun, Session
from wakeful.core.spec.bindings import FileBinding
from wakeful.core.spec.session import SessionSpec

# Stops after which a run has not succeeded, whatever its exit code. None of its outputs is put in place.
_ABANDONING = ("interrupt", "cancel", "terminate")
# The author of a change. `none`: unchanged. `own`: this run alone. `unknown`: the looks do not cover every change.
Whose = Literal["none", "own", "others", "unknown"]


def has_succeeded(run: OpenRun, report: ProcessEnded) -> bool:
    """Did the run exit with code 0, without a problem, a halt or a stop that overrides the exit code?"""
    is_abandoned = run.stop is not None and run.stop.why in _ABANDONING and run.staged is None
    return not is_abandoned and run.halt is None and report.problem is None and report.exit_code == 0


def stage_outputs(core: Core, decision: Decision, session: Session, report: ProcessEnded) -> bool:
    """Record the outputs that wait to be put in place, and delay the run's end. False if there are none."""
    run = session.run
    assert run is not None
    # The outputs were staged before, or there are none to land: the run ends without staging.
    if run.staged is not None or not report.staged or not has_succeeded(run, report):
        return False
    core.looked.landing[session.id] = report
    staged = ev.OutputsStaged(
        run=run.run,
        outputs=report.staged,
        exit_code=report.exit_code,
        usage=report.usage,
        output=report.output,
        isolation=report.isolation,
        undeclared=report.undeclared,
        trace=report.trace,
        workspace=report.workspace,
    )
    core.emit(decision, session.id, staged, run=run.run)
    return True


def land_outputs(core: Core, decision: Decision, session: Session, kept: tuple[KeptOutput, ...]) -> ProcessEnded | None:
    """Record once that the outputs are in place, and return how the process ended. None if nothing was staged."""
    run = session.run
    assert run is not None
    if run.staged is None:
        return None
    if run.landed is None:
        core.emit(decision, session.id, ev.OutputsLanded(run=run.run, kept=kept), run=run.run)
    return core.looked.landing.pop(session.id, None) or _recall_end(session, run, run.staged)


def find_conflicts(run: OpenRun) -> frozenset[str]:
    """Return the identities of the bindings with an output that was not put in place."""
    kept = run.landed.kept if run.landed is not None else ()
    return frozenset(
        binding.identity for binding in run.spec.files if any(_writes(run.spec, binding, one.path) for one in kept)
    )


def is_left_alone(look: TargetLook, run: OpenRun, key: str) -> bool:
    """Did only the landed outputs change this target since the run started?"""
    began = run.versions.get(key)
    changed = look.changed_since(began) if began is not None and began != look.version else frozenset[str]()
    landed = frozenset(output.path for output in run.staged.outputs) if run.staged is not None else frozenset[str]()
    return began is not None and changed is not None and changed <= landed


def _writes(spec: SessionSpec, binding: FileBinding, path: str) -> bool:
    whole = path if path.startswith("/") else f"{spec.root}/{path}"
    return binding.access != "read" and parse_under(binding.pattern, spec.root).matches(whole)


def _recall_end(session: Session, run: OpenRun, staged: ev.OutputsStaged) -> ProcessEnded:
    """Rebuild the report of the process's end, which an earlier daemon recorded."""
    return ProcessEnded(
        session=session.id,
        run_id=run.run_id,
        exit_code=staged.exit_code,
        usage=staged.usage,
        output=staged.output,
        isolation=staged.isolation,
        undeclared=staged.undeclared,
        trace=staged.trace,
        staged=staged.outputs,
        workspace=staged.workspace,
    )


def is_attributed(run: OpenRun) -> bool:
    """Is every write of this run on record?"""
    return run.agent is not None and not run.spec.is_staged and find_unattributed_writer(run.spec, run.agent) is None


def judge_change(look: TargetLook, run: OpenRun, key: str) -> Whose:
    """Find the author of the changes since the run started."""
    began = run.versions.get(key)
    if began is None:
        return "unknown"
    if began == look.version:
        return "none"
    changes = look.list_changes_since(began)
    if changes is None:
        return "unknown"
    return "own" if all(_is_own(change, run.progress.wrote.get(change.path)) for change in changes) else "others"


def _is_own(change: PathChange, own: OwnFile | None) -> bool:
    """Did the run alone make this change, from start to end? A change of the x bit always counts as made by others."""
    if own is None or own.is_mixed or change.after is None:
        return False
    (before_kind, before), (after_kind, after) = (_split_digest(digest) for digest in (change.before, change.after))
    return (before, after) == (own.base, own.digest) and (change.before is None or before_kind == after_kind)


def _split_digest(digest: str | None) -> tuple[str, str | None]:
    """Split the digest that a look has for a path into the path's kind and the digest of its content."""
    if digest is None:
        return "", None
    kind, _, content = digest.rpartition(":")
    return kind, content
