"""Landing: outputs that a run made in a private write area are put in place after its success is certain,
and before the success is recorded (rule 27).

`run_end` stages the outputs when the process has ended. The plan then contains `LandOutputs` until they are in place,
and after that the run ends as any other. The event `outputs_staged` holds all that landing needs, so the next daemon
can continue after a crash.
"""

from __future__ import annotations

from wakeful.core.deciding.core import Core
from wakeful.core.deciding.decision import Decision
from wakeful.core.looking.observed_state import TargetLook
from wakeful.core.looking.patterns import parse_under
from wakeful.core.record import events as ev
from wakeful.core.record.observations import KeptOutput, ProcessEnded
from wakeful.core.record.state import OpenRun, Session
from wakeful.core.spec.session import FileBinding, SessionSpec

# Stops after which a run has not succeeded, whatever its exit code. None of its outputs is put in place.
_ABANDONING = ("interrupt", "cancel", "terminate")


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
    """Return the identities of the bindings with an output that was kept aside."""
    kept = run.landed.kept if run.landed is not None else ()
    return frozenset(
        binding.identity for binding in run.spec.files if any(_means(run.spec, binding, one.path) for one in kept)
    )


def is_left_alone(look: TargetLook, run: OpenRun, key: str) -> bool:
    """Did only the landed outputs change this target since the run started?"""
    began = run.versions.get(key)
    changed = look.changed_since(began) if began is not None and began != look.version else frozenset[str]()
    landed = frozenset(output.path for output in run.staged.outputs) if run.staged is not None else frozenset[str]()
    return began is not None and changed is not None and changed <= landed


def _means(spec: SessionSpec, binding: FileBinding, path: str) -> bool:
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
