"""Trace one real save through a real daemon: `make walk`.

The script starts a daemon in a temporary folder, with one session that a file wakes. It waits until the daemon rests,
saves the file, and lists the functions of the package in the order in which they are first entered. The list goes from
the kernel's hint to the spawn of the run's process, and on until the daemon has printed `suspended`. The script saves
three times and shows the last save, without functions that another save did not need, because the clock called those.
The daemon lives in this process, with a profile function in every thread. No module of the daemon knows this script.

    scripts/walk.py               the walk, grouped by stage, and the counts
    scripts/walk.py --count       the counts alone
    scripts/walk.py --markdown    a table for docs/architecture.md, one line a module
"""

from __future__ import annotations

import argparse
import io
import itertools
import os
import queue
import shutil
import signal
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from wakeful.cli import main as run_command_line

PACKAGE = "wakeful"
SESSION = "walk"
# The daemon rests when no function of the package was entered for so long.
QUIET_SECONDS = 0.3
# Work that the daemon does by the clock, such as its sweep, falls into one save and not into all.
SAVES = 3
# A busy machine stalls for tens of seconds.
PATIENCE_SECONDS = 60.0
# The audit events of a spawn; the second argument of each is the command.
SPAWNS = ("subprocess.Popen", "os.posix_spawn")
# The file that a run of the session waits for.
RELEASED = "released"

# The name of a folder or module of the package, and its stage of the walk. The innermost listed name decides, so a new
# sub-folder needs a line only if its stage differs from its parent's. Modules without a listed name carry work from one
# stage to the next (the reactor, the wiring). They are shown in the stage before them.
STAGES = {
    "hints": "hint",
    "sources": "look",
    "core": "decide",
    "eventlog": "log",
    "runners": "start",
    "narration": "print",
}
# The runners' stage is "start" until the process is spawned, "run" while it lives, "end" after that.
START, RUN, END = "start", "run", "end"

# The run waits until it is released. The spec does not name the path of the file that releases it, because the daemon
# would look at that path to find out what the command may read.
SPEC = """\
root: {root}
objective: Be walked through.
bindings:
  input: {{file: input.txt}}
run:
  command: [sh, -c, 'outside=..; until [ -e $outside/{released} ]; do sleep 0.02; done']
"""


class WalkFailed(Exception):
    """The save did not complete. The message says how far it came."""


class Step(NamedTuple):
    """One function, when it was first entered."""

    stage: str
    module: str
    function: str


@dataclass(frozen=True)
class Walk:
    """The steps of one save. The steps before `spawned` were taken before the process was spawned."""

    steps: tuple[Step, ...]
    spawned: int

    def list_names(self, end: int | None = None) -> set[tuple[str, str]]:
        """Module and function of the steps before `end`, or of all steps."""
        return {(step.module, step.function) for step in self.steps[:end]}

    def list_parts(self) -> Iterator[tuple[tuple[Step, ...], str]]:
        """The steps before the spawn and the steps after it, each with the words for its end."""
        yield self.steps[: self.spawned], "the process is spawned"
        yield self.steps[self.spawned :], "`suspended` is printed"


def leave_common(walks: Sequence[Walk]) -> Walk:
    """Return the last walk, with only the functions that all walks have.

    A function is before the spawn if all walks have it there.
    """
    common = set.intersection(*(walk.list_names() for walk in walks))
    early = common & set.intersection(*(walk.list_names(walk.spawned) for walk in walks))
    steps = [step for step in walks[-1].steps if step[1:] in common]
    before = [step for step in steps if step[1:] in early]
    return Walk((*before, *(step for step in steps if step[1:] not in early)), len(before))


class Tracer:
    """Notes each function of the package when it is first entered, in any thread, while it is on."""

    def __init__(self) -> None:
        self._known: dict[CodeType, tuple[str, str] | None] = {}
        # Several threads enter functions at once. The order is that in which they get the lock.
        self._lock = threading.Lock()
        self.begin()
        self.is_on = False

    def begin(self) -> None:
        """Trace one save from now on."""
        # The stage of a runner's function, which depends on how far the run is.
        self.phase = START
        # The moments when a function was last entered, and when one was last added to the walk.
        self.entered_at = self.added_at = time.monotonic()
        self.spawned: int | None = None
        self.steps: list[Step] = []
        self._entered: set[tuple[str, str]] = set()
        self.is_on = True

    def install(self) -> None:
        """Call this before the daemon starts a thread: `threading.setprofile` reaches only threads that start later."""
        sys.addaudithook(self._notice_spawn)
        threading.setprofile(self._enter)
        sys.setprofile(self._enter)

    def uninstall(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _enter(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code not in self._known:
            self._known[code] = name_function(frame)
        name = self._known[code]
        if name is None:
            return
        self.entered_at = time.monotonic()
        if self.is_on and name not in self._entered:
            with self._lock:
                if self.is_on and name not in self._entered:
                    self._entered.add(name)
                    self.added_at = self.entered_at
                    self.steps.append(Step(self._find_stage(name[0]), *name))

    def _find_stage(self, module: str) -> str:
        stage = find_stage(module)
        if stage is None:
            return self.steps[-1].stage if self.steps else "hint"
        return self.phase if stage == START else stage

    def _notice_spawn(self, event: str, arguments: tuple[object, ...]) -> None:
        """Note the spawn.

        Python calls its audit hooks for every process, with its arguments, just before it is started.
        """
        if self.is_on and self.spawned is None and event in SPAWNS and RELEASED in str(arguments[1]):
            self.spawned = len(self.steps)
            self.phase = RUN


def name_function(frame: FrameType) -> tuple[str, str] | None:
    """Return the module and function of a frame, or None if it is not of the package or has no source file.

    The methods that `dataclass` generates have no file.
    """
    module = frame.f_globals.get("__name__", "")
    if module != PACKAGE and not module.startswith(f"{PACKAGE}."):
        return None
    if frame.f_code.co_filename.startswith("<"):
        return None
    qualified = frame.f_code.co_qualname
    function = fold_name(qualified)
    if function == "_":
        # All handlers that are registered by a type have this name. The line number tells them apart.
        if qualified != function:
            return None
        function = f"_ (line {frame.f_code.co_firstlineno})"
    return (module.removeprefix(f"{PACKAGE}."), function) if function else None


def fold_name(qualified: str) -> str:
    """Return `Core.take` for `Core.take.<locals>.<listcomp>`. Return "" for a lambda outside of every function."""
    around = itertools.takewhile(lambda part: part == "<locals>" or not part.startswith("<"), qualified.split("."))
    return ".".join(part for part in around if part != "<locals>")


def find_stage(module: str) -> str | None:
    return next((STAGES[name] for name in reversed(module.split(".")) if name in STAGES), None)


class Lines(io.TextIOBase):
    """Standard output of the daemon. The tracer stops at the moment when `suspended` is printed."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._begun = ""
        self.all: list[str] = []
        self._unread: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            if line.endswith(f"{SESSION}: suspended"):
                self._tracer.is_on = False
            self.all.append(line)
            self._unread.put(line)
        return len(text)

    def end(self) -> None:
        """The daemon has ended, so no wait may go on."""
        self._unread.put(None)

    def wait_for(self, words: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                line = self._unread.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise WalkFailed(f"the daemon did not print {words!r} within {PATIENCE_SECONDS:g} s") from None
            if line is None:
                raise WalkFailed(f"the daemon ended before it printed {words!r}")
            if words in line:
                return


def wait_for_quiet(read_moment: Callable[[], float], words: str) -> None:
    """Wait until the moment that `read_moment` returns is long enough ago.

    If that never happens, the error has `words`.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (quiet := time.monotonic() - read_moment()) < QUIET_SECONDS:
        if time.monotonic() > deadline:
            raise WalkFailed(f"{words} within {PATIENCE_SECONDS:g} s")
        time.sleep(QUIET_SECONDS - quiet)


def save(file: Path, text: str) -> None:
    """Write once in place, as most programs save a small file, so that the file is never empty."""
    with file.open("r+b", buffering=0) as opened:
        opened.write(text.encode())


def trace_saves(folder: Path, tracer: Tracer, lines: Lines) -> Iterator[Walk]:
    """Wait until the session rests, save its file, and wait until it rests again.

    Repeat for each walk that is taken.
    """
    released = folder / RELEASED
    lines.wait_for(f"{SESSION}: suspended")
    for run in itertools.count(2):
        wait_for_quiet(lambda: tracer.entered_at, "the daemon did not come to rest")
        released.unlink()
        tracer.begin()
        save(folder / "project" / "input.txt", f"{run}\n")
        lines.wait_for(f"{SESSION}: run {run} started")
        # The run ends only after it is released, so that the steps of its start and of its end do not mix. While it
        # runs, the daemon is never at rest, because it measures the run ten times a second.
        wait_for_quiet(lambda: tracer.added_at, "the daemon went on entering new functions after the run started")
        if tracer.spawned is None:
            raise WalkFailed("the run started, and no process was spawned")
        tracer.phase = END
        released.touch()
        lines.wait_for(f"{SESSION}: suspended")
        yield Walk(tuple(tracer.steps), tracer.spawned)


def trace_save() -> Walk:
    """Trace one save in a temporary folder. Raise WalkFailed if it does not complete."""
    folder = Path(tempfile.mkdtemp(prefix="wakeful-walk-")).resolve()
    try:
        return trace_save_in(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def trace_save_in(folder: Path) -> Walk:
    project, specs, state = folder / "project", folder / "sessions.d", folder / "state"
    project.mkdir()
    specs.mkdir()
    (folder / RELEASED).touch()
    (project / "input.txt").write_text("1\n")
    (specs / f"{SESSION}.yaml").write_text(SPEC.format(root=project, released=RELEASED))

    tracer = Tracer()
    lines = Lines(tracer)
    walks: list[Walk] = []
    failures: list[WalkFailed] = []
    has_ended = threading.Event()

    def drive() -> None:
        try:
            walks.extend(itertools.islice(trace_saves(folder, tracer, lines), SAVES))
        except WalkFailed as failed:
            failures.append(failed)
        finally:
            tracer.is_on = False
            if not has_ended.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

    # The driver starts before the tracer is installed, so it is not traced itself.
    driver = threading.Thread(target=drive, name="walk")
    driver.start()
    places = ["--specs", str(specs), "--state", str(state), "--socket", str(state / "w.sock")]
    code = live_traced(["daemon", *places, "--log", "text"], tracer, lines)
    has_ended.set()
    lines.end()
    driver.join()
    if failures:
        raise WalkFailed(f"{failures[0]}; the daemon ended with {code} and had said:\n" + "\n".join(lines.all))
    return leave_common(walks)


def live_traced(words: list[str], tracer: Tracer, lines: Lines) -> int:
    """Run `wakeful WORDS` in this process until it ends. Return its exit code."""
    kept = sys.argv, sys.stdout
    sys.argv, sys.stdout = [PACKAGE, *words], lines
    tracer.install()
    try:
        return run_command_line()
    finally:
        tracer.uninstall()
        sys.argv, sys.stdout = kept


def show_counts(walk: Walk) -> Iterator[str]:
    for end, steps in (("spawn", walk.steps[: walk.spawned]), ("suspended", walk.steps)):
        yield f"until {end}: {len({step.module for step in steps})} modules, {len(steps)} functions"


def show_walk(walk: Walk) -> Iterator[str]:
    """Yield the stages as headings.

    Below each is a line for each visit to a module, with the functions that are entered there.
    """
    for part, end in walk.list_parts():
        for stage, steps in itertools.groupby(part, lambda step: step.stage):
            yield stage
            for module, entered in itertools.groupby(steps, lambda step: step.module):
                words = f"  {module}: {', '.join(step.function for step in entered)}"
                yield from textwrap.wrap(words, 120, subsequent_indent="      ", break_long_words=False)
        yield f"-- {end}"


def show_table(walk: Walk) -> Iterator[str]:
    """Yield a row for each module, in the order in which the walk first enters it.

    The parts before and after the spawn have rows of their own. A module that carries work between stages has no stage
    in its row.
    """
    yield "| stage | module | functions |"
    yield "|---|---|---|"
    for part, end in walk.list_parts():
        rows: dict[str, list[str]] = {}
        stages: dict[str, str] = {}
        for step in part:
            stages.setdefault(step.module, step.stage if find_stage(step.module) else "")
            rows.setdefault(step.module, []).append(step.function)
        for module, functions in rows.items():
            yield f"| {stages[module]} | `{module}` | {', '.join(f'`{function}`' for function in functions)} |"
        yield f"| | | *{end}* |"


def main() -> int:
    parser = argparse.ArgumentParser(description="Trace one real save through a real daemon.")
    parser.add_argument("--count", action="store_true", help="print the counts alone")
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs")
    options = parser.parse_args()
    try:
        walk = trace_save()
    except WalkFailed as failed:
        print(f"walk: {failed}", file=sys.stderr)
        return 1
    if options.markdown:
        print(*show_table(walk), "", sep="\n")
    elif not options.count:
        print(*show_walk(walk), "", sep="\n")
    print(*show_counts(walk), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
