"""Random histories from a seed: a small random graph of sessions, a person, changing files, and crashes.

Every choice comes from one `random.Random`, so a seed determines a whole history. `live_through(seed)` lives a history
and lets the oracle check it. It fails with the words of the broken promise. `steps` bounds the length of the history.
"""

from __future__ import annotations

import random

from core.simulated_world import World
from core.spec_builders import after, commits, every, hook, probe, read, service, session, write
from wakeful.core.calls import call_types as calls
from wakeful.core.looking.targets import ProbeTarget, ServiceTarget
from wakeful.core.spec.session import SessionSpec, Settings
from wakeful.errors import CallerError

PATHS = ("s0", "s1", "s2")
TEXTS = ("red", "green", "blue")


def make_spec(rng: random.Random, index: int, count: int) -> SessionSpec:
    """Return a spec that reads sources and the outputs of earlier sessions, and writes one output of its own."""
    name = f"n{index}"
    inputs = [*PATHS, *(f"o{other}" for other in range(index))]
    chosen = rng.sample(inputs, rng.randint(1, min(3, len(inputs))))
    bindings = [
        read(
            path,
            settle_seconds=rng.choice((0.0, 0.1, 0.5)),
            settle_max_seconds=rng.choice((0.5, 2.0)),
            wake=rng.random() < 0.9,
            stale_allowed=rng.random() < 0.05,
        )
        for path in chosen
    ]
    if rng.random() < 0.1 and index:
        bindings.append(after(f"n{rng.randrange(index)}"))
    if rng.random() < 0.2 and count > 1:
        # A binding `on: failed` may name a later session. It makes no cycle.
        other = rng.choice([one for one in range(count) if one != index])
        on = rng.choice(("failed", "finished")) if other < index else "failed"
        bindings.append(after(f"n{other}", on=on))
    if rng.random() < 0.15:
        bindings.append(every(3600.0, catch_up=rng.choice(("once", "none", "all"))))
    elif rng.random() < 0.15:
        bindings.append(every(rng.choice((30.0, 3600.0)), overlap=rng.choice(("queue_one", "skip", "replace"))))
    if rng.random() < 0.15:
        bindings.append(commits("src", each_commit=rng.random() < 0.5))
    if rng.random() < 0.1:
        bindings.append(service("tcp://db"))
    if rng.random() < 0.1:
        bindings.append(probe("fx"))
    if rng.random() < 0.2:
        bindings.append(hook())
    return session(
        name,
        *bindings,
        write(f"o{index}", wake=rng.random() < 0.1),
        retries=rng.choice((0, 0, 1, 2)),
        priority=rng.choice((10, 50, 90)),
        pace_seconds=rng.choice((0.0, 0.0, 0.0, 5.0)),
        first=rng.choice((None, None, "adopt")) if index == count - 1 else None,
        objective=rng.choice((None, "again")),
        when=rng.choice(("any",) * 8 + ("all", "changed")),
        pool=rng.choice((None, None, None, "gpu")),
        enabled=rng.random() < 0.95,
    )


class History:
    def __init__(self, seed: int, *, crashes: bool = True) -> None:
        self.rng = random.Random(seed)
        self.count = self.rng.randint(1, 5)
        files = {path: self.rng.choice(TEXTS) for path in PATHS if self.rng.random() < 0.8}
        specs = [make_spec(self.rng, index, self.count) for index in range(self.count)]
        self.world = World(*specs, settings=Settings(concurrency=self.rng.choice((1, 2, 4))), files=files)
        self.crashes = crashes
        self.done: list[str] = []
        self.knocks = 0
        self.moves = [
            *[self.write] * 6, *[self.answer] * 10, *[self.end] * 6, *[self.hints] * 5, *[self.wait] * 6,
            self.delete, self.touch, self.call, self.call, self.call, self.respec, self.hide, self.show, self.commit,
            self.knock, self.knock, self.remove, self.jump, self.hold, self.recover, self.recover, self.tune, self.probe, self.serve, self.close,
        ]  # fmt: skip
        if crashes:
            self.moves += [self.crash, self.crash_soon, self.crash_soon]

    def live(self, steps: int) -> None:
        for _ in range(steps):
            move = self.rng.choice(self.moves)
            self.done.append(move.__name__)
            move()
            self.world.oracle.judge_plan()

    # -- the world ----------------------------------------------------------------------------------

    def write(self) -> None:
        self.world.write(self.rng.choice(PATHS), self.rng.choice(TEXTS))

    def delete(self) -> None:
        path = self.rng.choice(PATHS)
        if f"/project/{path}" in self.world.files:
            self.world.delete(path)

    def touch(self) -> None:
        path = self.rng.choice(PATHS)
        if f"/project/{path}" in self.world.files:
            self.world.touch(path)

    def hide(self) -> None:
        if self.rng.random() < 0.3:
            self.world.hide(self.rng.choice(PATHS))

    def show(self) -> None:
        for path in PATHS:
            self.world.show(path)

    def commit(self) -> None:
        self.world.commit("src", self.rng.choice(TEXTS))

    def probe(self) -> None:
        self.world.probes[("fx",)] = self.rng.choice((None, *TEXTS))
        self.world.hint_kind(ProbeTarget)

    def serve(self) -> None:
        self.world.services["tcp://db"] = self.rng.choice(("up", "down"))
        self.world.hint_kind(ServiceTarget)

    def hold(self) -> None:
        """A rebase begins or ends. Its end is hinted."""
        self.world.held = None if self.world.held else "git rebase"
        if self.world.held is None:
            self.world.hint(*self.world.followed)

    def tune(self) -> None:
        self.world.snapshot_early = self.rng.random() < 0.5
        self.world.reads_late = self.rng.random() < 0.5

    # -- the daemon's edges -------------------------------------------------------------------------

    def hints(self) -> None:
        self.world.deliver_hints()

    def answer(self) -> None:
        if self.world.looks:
            self.world.answer(self.rng.randrange(len(self.world.looks)))

    def end(self) -> None:
        names = sorted(process.run.spec.name for process in self.world.processes.values())
        if not names:
            return
        name = self.rng.choice(names)
        process = self.world.process_of(name)
        assert process is not None
        code = None if process.stops else self.rng.choice((0, 0, 0, 1))
        self.world.end(name, code, signal=15 if code is None else None)

    def recover(self) -> None:
        if self.world.recoveries:
            # A run kept by a systemd unit is re-adopted. Any other run is ended.
            if self.world.recoveries[0][1] in self.world.orphans and self.rng.random() < 0.5:
                self.world.readopt()
            else:
                self.world.recover(wrote=self.rng.random() < 0.5)

    def wait(self) -> None:
        self.world.advance(self.rng.choice((0.0, 0.05, 0.2, 1.0, 5.0, 40.0)))

    def jump(self) -> None:
        self.world.jump(self.rng.choice((-90_000.0, -60.0, 60.0, 7200.0, 200_000.0)))

    def crash(self) -> None:
        self.world.crash()

    def crash_soon(self) -> None:
        self.world.crash_when = self.rng.choice(("decided", "committed"))

    # -- people ---------------------------------------------------------------------------------------

    def call(self) -> None:
        name = f"n{self.rng.randrange(self.count)}"
        call = self.rng.choice(
            (
                calls.Activate(name=name),
                calls.Cancel(name=name),
                calls.Suspend(name=name),
                calls.Interrupt(name=name),
                calls.Sleep(name=name, seconds=20.0),
                calls.Resume(name=name),
                calls.Send(name=name, text="hello"),
            )  # fmt: skip
        )
        try:
            self.world.call(call)
        except CallerError:
            self.done.append("refused")

    def knock(self) -> None:
        """Deliver to a session that may have no webhook. Some deliveries are stopped by the filter."""
        self.knocks += 1
        call = calls.Deliver(
            name=f"n{self.rng.randrange(self.count)}",
            binding="hook",
            sender="github",
            delivery=f"d{self.knocks}",
            payload="blob",
            size_bytes=self.rng.choice((10, 10, 40_000_000)),
            is_filtered=self.rng.random() < 0.2,
        )
        try:
            self.world.call(call, author="webhook:github")
        except CallerError:
            self.done.append("refused")

    def respec(self) -> None:
        index = self.rng.randrange(self.count)
        self.world.declare(make_spec(self.rng, index, self.count))

    def remove(self) -> None:
        name = f"n{self.rng.randrange(self.count)}"
        if name in self.world.specs:
            self.world.remove(name)
        else:
            self.respec()

    def close(self) -> None:
        """Terminate a session, or reopen it and read its file again."""
        name = f"n{self.rng.randrange(self.count)}"
        if name not in self.world.specs or name not in self.world.core.state.ids:
            return
        if self.world.session(name).is_terminated:
            self.world.call(calls.Open(name=name, again=True))
            self.world.declare(self.world.specs[name])
        elif self.rng.random() < 0.3:
            self.world.call(calls.Terminate(name=name))

    # -- the end --------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Make everything visible, resume every session, and let no run fail. What is still owed must then be done."""
        world = self.world
        world.crash_when, world.held = None, None
        world.unreadable.clear()
        world.services.clear()
        world.probes[("fx",)] = "healed"
        world.hint(*world.followed)
        world.rest(400.0)
        for _ in range(3):
            for session_ in list(world.core.state):
                if not session_.is_terminated:
                    world.call(calls.Resume(name=session_.name))
            world.advance(70.0)
            world.rest(400.0)

    def judge(self) -> None:
        world = self.world
        self.heal()
        world.oracle.judge_rest()
        world.oracle.judge_replay(self.rng.randrange(len(world.log) + 1))
        for name in sorted(world.specs):
            account = world.oracle.by_name(name)
            if account is not None and account.is_armed and not account.has_succeeded:
                world.call(calls.Activate(name=name))
        world.rest(400.0)
        world.advance(70.0)
        world.rest(400.0)
        world.oracle.judge_rest()
        world.oracle.judge_outputs()
        before = len(world.log)
        world.tick()
        assert len(world.log) == before, "at rest nothing follows by itself"
        self._judge_restart()

    def _judge_restart(self) -> None:
        """A crash at rest changes nothing: the plan is derived again, and it is empty."""
        world = self.world
        starts = [entry for entry in world.log if entry.kind == "run_started"]
        world.crash()
        world.rest(1.0)
        again = [entry for entry in world.log if entry.kind == "run_started"]
        assert again == starts, "a restart at rest starts nothing"


def live_through(seed: int, steps: int = 60, *, crashes: bool = True) -> History:
    history = History(seed, crashes=crashes)
    history.live(steps)
    history.judge()
    return history
