"""An independent check of what must hold (docs/rules.md, last section).

It reads the log and the world, never the reasons of the core. `take` checks every committed entry against the events
before it. `judge_rest` checks a world in which nothing is under way. `judge_replay` compares the fold of the log with
the live state. A history that breaks a promise fails with the words of the promise.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from wakeful.core.record import events as ev
from wakeful.core.spec.bindings import AnyBinding, CommitsBinding, FileBinding, SessionBinding
from wakeful.core.spec.session import SessionSpec

if TYPE_CHECKING:
    from core.simulated_world import Recorded, World

ORDERED = ("cron ", "every ", "session ", "message", "webhook ", "activation")


@dataclass(slots=True)
class Account:
    """The oracle's account of one session, read from the log."""

    name: str = ""
    spec: SessionSpec | None = None
    is_declared: bool = False
    is_terminated: bool = False
    # The session is archived or on another host.
    is_shut: bool = False
    is_held: bool = False
    # Versions dealt with, by key: those of finished, given up, skipped and adopted causes.
    dealt: dict[str, str] = field(default_factory=dict)
    # The last delivery to each webhook, by key.
    delivered: dict[str, int] = field(default_factory=dict)
    is_first_dealt: bool = False
    is_adopted: bool = False
    wake: ev.WakeRequested | ev.WakeExtended | None = None
    run: ev.RunStarted | None = None
    run_spec: SessionSpec | None = None
    # The last run of the open wake left it open: a retry, a replacement or a loss is on record.
    is_open_again: bool = False
    has_succeeded: bool = False
    # The number of runs that ended for good, by outcome.
    ends: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    wakes: int = 0

    @property
    def is_armed(self) -> bool:
        spec = self.spec
        return (
            self.is_declared
            and not self.is_terminated
            and not self.is_shut
            and spec is not None
            and spec.run is not None
            and spec.enabled
        )


class Oracle:
    def __init__(self, world: World) -> None:
        self.world = world
        self.seqs: dict[str, int] = {}
        self.accounts: dict[str, Account] = {}

    def reboot(self) -> None:
        """Do nothing at a restart: a crash loses only uncommitted entries, and the oracle reads committed ones only."""

    def by_name(self, name: str) -> Account | None:
        return next((account for account in self.accounts.values() if account.name == name), None)

    def take(self, entry: Recorded) -> None:
        assert entry.seq == self.seqs.get(entry.session, 0) + 1, "a session's seq has no gaps"
        self.seqs[entry.session] = entry.seq
        account = self.accounts.setdefault(entry.session, Account())
        match entry.event:
            case ev.SessionOpened(name=name, seen=seen, is_first_taken=is_first_taken):
                account.name = name
                # A fork does not owe what its parent dealt with (rule 43).
                account.dealt |= seen
                account.is_first_dealt = is_first_taken
            case ev.SessionRenamed(new=new):
                account.name = new
            case ev.SpecDeclared(spec=spec, positions=positions):
                account.spec, account.is_declared, account.is_held = spec, True, False
                account.dealt |= positions
            case ev.SpecRemoved():
                account.is_declared = False
                account.wake = account.wake if account.run is not None else None
            case ev.SessionAdopted(versions=versions):
                account.dealt |= versions
                account.is_first_dealt = account.is_adopted = True
            case ev.DeliveryReceived(key=key, position=position, is_filtered=is_filtered):
                assert position == account.delivered.get(key, 0) + (not is_filtered), (
                    f"{account.name}: deliveries are numbered without gaps"
                )
                account.delivered[key] = position
            case ev.WakeRequested() as event:
                assert account.wake is None, f"{account.name}: one open wake per session"
                assert event.wake == account.wakes + 1 and event.causes, (
                    f"{account.name}: a wake has a number and a cause"
                )
                account.wake, account.wakes = event, event.wake
                account.is_open_again = False
            case ev.WakeExtended() as event:
                assert account.wake is not None and event.wake == account.wake.wake, (
                    f"{account.name}: a wake is extended under its id"
                )
                account.wake = event
            case ev.WakeWithdrawn() as event:
                self._take_withdrawal(account, event)
            case ev.RunStarted() as event:
                self._take_start(account, event)
            case ev.RunFinished() as event:
                self._take_end(account, event)
            case ev.SlotSkipped(key=key, slot=slot):
                account.dealt[key] = max(slot, account.dealt.get(key, ""))
            case ev.ClockRebased(key=key, new=new, run_slot=run_slot):
                account.dealt[key] = new
                if account.run is not None and key in account.run.versions:
                    # After the clock was set back, the slot of the run lies in the far future. The run deals with the
                    # slot of the new time.
                    account.run = replace(account.run, versions={**account.run.versions, key: run_slot or new})
            case ev.SessionSlept():
                account.is_held = True
            case ev.SessionResumed():
                account.is_held = False
            case ev.ActivationRequested():
                account.is_held = False
            case ev.SessionTerminated():
                assert account.run is None, f"{account.name}: terminated after the run's end"
                account.is_terminated, account.wake = True, None
            case ev.SessionReopened():
                account.is_terminated = False
            case ev.SessionRewound(versions=versions):
                account.dealt |= versions
            case ev.OutputsAdopted(versions=versions):
                assert account.run is None, f"{account.name}: files of a call are adopted while it rests"
                account.dealt |= versions
            case ev.SessionFrozen() | ev.SessionArchived():
                assert account.run is None and account.wake is None, f"{account.name}: closed while something is owed"
                account.is_shut = True
            case ev.SessionThawed() | ev.SessionRestored():
                account.is_shut = False
            case ev.SessionArrived():
                account.is_shut, account.is_held = False, True

    def _take_withdrawal(self, account: Account, event: ev.WakeWithdrawn) -> None:
        assert account.run is None
        if event.reason == "undone":
            assert account.wake is not None and not account.is_open_again, (
                f"{account.name}: what was tried is not undone"
            )
        account.wake = None
        if event.versions:
            self._deal(account, event.versions)
            account.is_first_dealt, account.has_succeeded = True, False

    def _take_start(self, account: Account, event: ev.RunStarted) -> None:
        name = account.name
        assert account.run is None, f"{name}: one run per session"
        assert account.is_declared and not account.is_terminated and account.spec is not None and account.spec.enabled
        assert account.wake is not None and event.wake == account.wake.wake, f"{name}: a run serves the open wake"
        assert event.run == account.runs + 1
        for key, version in event.versions.items():
            if key.startswith(ORDERED) and key in account.dealt:
                assert not is_behind(version, account.dealt[key]), (
                    f"{name}: {key} went back from {account.dealt[key]} to {version}"
                )
        if not account.is_open_again:
            news = [cause for cause in event.causes if self._is_news(account, cause, event.versions)]
            assert news, f"{name}: run {event.run} has no cause that was not dealt with: {event.causes} {account.dealt}"
            stale = [cause for cause in event.causes if cause not in news]
            assert not stale, f"{name}: run {event.run} is told what is no news: {stale}"
        if not event.mixed and "activation" not in {cause.key for cause in event.causes}:
            self._judge_glitch(account, event)
        account.run, account.run_spec, account.runs = event, account.spec, event.run

    def _is_news(self, account: Account, cause: ev.Cause, versions: dict[str, str]) -> bool:
        if cause.key == "first":
            return not account.is_first_dealt
        # A cause that is unknown at the start is told to the run all the same. It is still owed after the run.
        if cause.new != versions.get(cause.key, cause.new):
            return False
        dealt = account.dealt.get(cause.key)
        if cause.key.startswith(ORDERED):
            return dealt is None or is_behind(dealt, cause.new)
        return cause.new != dealt

    def _judge_glitch(self, account: Account, event: ev.RunStarted) -> None:
        """Check that all upstreams have dealt with the same version of each input that two of them read."""
        assert account.spec is not None
        read: dict[tuple[str, str], tuple[str, str]] = {}
        for upstream in self.ancestors(account):
            assert upstream.run is None, f"{account.name} starts while {upstream.name} runs"
            if upstream.spec is None or not upstream.is_declared:
                continue
            if not upstream.has_succeeded:
                continue
            for binding in upstream.spec.files:
                version = upstream.dealt.get(binding.identity)
                if binding.access == "write" or not binding.wake or version is None:
                    continue
                other, known = read.setdefault((upstream.spec.root, binding.identity), (upstream.name, version))
                assert known == version, (
                    f"{account.name} starts between {other} and {upstream.name}: {binding.identity}"
                )

    def ancestors(self, account: Account, *, past_stale: bool = False) -> list[Account]:
        """Find upstreams by literal write patterns and session bindings, without the core's graph.

        A session that allows stale input may start between its upstreams. The search ends there, unless `past_stale` is
        set.
        """
        found: dict[str, Account] = {}
        stack = [account]
        while stack:
            here = stack.pop()
            if here.spec is None:
                continue
            if not past_stale and any(allows_stale(binding) for binding in here.spec.bindings):
                continue
            for other in self.accounts.values():
                if (
                    other.name not in found
                    and other is not here
                    and other.is_declared
                    and not other.is_terminated
                    and not other.is_shut
                    and feeds(other.spec, here.spec)
                ):
                    found[other.name] = other
                    stack.append(other)
        return list(found.values())

    def _take_end(self, account: Account, event: ev.RunFinished) -> None:
        run = account.run
        assert run is not None and event.run == run.run, f"{account.name}: a run ends once"
        account.run = None
        account.is_open_again = not event.is_final
        if not event.is_final:
            assert event.outcome != "succeeded"
            account.has_succeeded = False
            if not account.is_declared:
                account.wake = None
            return
        account.wake = None
        account.is_first_dealt = True
        account.has_succeeded = event.outcome == "succeeded"
        account.ends[event.outcome] += 1
        self._deal(account, run.versions)
        for key in event.touched:
            # It is unknown how much of the change the run saw.
            account.dealt.pop(key, None)

    def _deal(self, account: Account, versions: dict[str, str]) -> None:
        for key, version in versions.items():
            if not key.startswith(ORDERED) or key not in account.dealt or is_behind(account.dealt[key], version):
                account.dealt[key] = version

    # -- at rest ----------------------------------------------------------------------------------

    def judge_rest(self) -> None:
        """Check that no accepted change is lost: every armed session without a hold has seen the current versions."""
        world = self.world
        assert not (world.processes or world.looks or world.recoveries or world.hints)
        for account in self.accounts.values():
            spec = account.spec
            if spec is None or not account.is_armed:
                continue
            if account.is_held or self._is_held_upstream(account):
                continue
            assert account.run is None, f"{account.name} is still running"
            for binding in spec.webhooks if spec.when == "any" else ():
                assert int(account.dealt.get(binding.identity, "0")) == account.delivered.get(binding.identity, 0), (
                    f"{account.name} has not dealt with all deliveries"
                )
            for binding in spec.bindings:
                if isinstance(binding, SessionBinding) and binding.on != "succeeded" and spec.when == "any":
                    self._judge_heard(account, binding)
                if not binding.wake or spec.when != "any" or not isinstance(binding, FileBinding | CommitsBinding):
                    continue
                if isinstance(binding, FileBinding) and binding.access == "write":
                    continue
                dealt, there = account.dealt.get(binding.identity), world.version_there(spec, binding)
                assert dealt == there, (
                    f"{account.name} has not seen the current {binding.name}: dealt with {dealt}, there is {there}"
                )
            assert account.wake is None, f"{account.name} rests with an open wake"

    def _judge_heard(self, account: Account, binding: SessionBinding) -> None:
        """Check that the session has dealt with every end of a run that its binding names."""
        other = self.by_name(binding.session)
        if other is None:
            return
        ends = other.ends["failed"] + (other.ends["succeeded"] if binding.on == "finished" else 0)
        dealt = int(account.dealt.get(binding.identity, "0"))
        assert dealt >= ends, (
            f"{account.name} was not woken: {binding.session} {binding.on} {ends} times, it saw {dealt}"
        )

    def _is_held_upstream(self, account: Account) -> bool:
        """Say whether an upstream holds the session: one that failed, sleeps or is disabled may do so (rule 31)."""
        return any(
            not upstream.has_succeeded or upstream.is_held or not upstream.is_armed
            for upstream in self.ancestors(account, past_stale=True)
        )

    def judge_outputs(self) -> None:
        """Check that every output is what its session computes from the current inputs."""
        for account in self.accounts.values():
            spec = account.spec
            if (
                spec is None
                or not account.is_armed
                or spec.when != "any"
                or not account.has_succeeded
                or self._is_held_upstream(account)
            ):
                continue
            if any(not binding.wake for binding in spec.files if binding.access != "write"):
                continue
            for path, text in self.world.outputs_of(spec, self.world.inputs_of(spec)).items():
                found = self.world.files.get(f"{spec.root}/{path}")
                assert found == text, f"{account.name} left {path} behind its inputs"

    def judge_replay(self, snapshot_at: int | None = None) -> None:
        """Check that replay gives the live state, also from a snapshot taken at any entry."""
        assert self.world.fold_log(snapshot_at=snapshot_at) == self.world.core.state.sessions

    def judge_plan(self) -> None:
        """Check that the plan is repeatable.

        It does not name an executed action again, except stops, which may be repeated.
        """
        core = self.world.core
        for session in core.state:
            plan = core.plan(session.id, self.world.attached)
            assert plan == core.plan(session.id, self.world.attached)
            assert not [action for action in plan if type(action).__name__ == "StartProcess"]


def allows_stale(binding: AnyBinding) -> bool:
    """Say whether the binding allows stale input. A failure that wakes a session does not hold it."""
    return binding.stale_allowed or getattr(binding, "on", "succeeded") != "succeeded"


def is_behind(position: str, than: str) -> bool:
    if position.isdigit() and than.isdigit():
        return int(position) < int(than)
    return position < than


def feeds(writer: SessionSpec | None, reader: SessionSpec) -> bool:
    if writer is None:
        return False
    # A fork's workspace is another place: the same pattern means other files there.
    written = {(writer.root, binding.pattern) for binding in writer.files if binding.access == "write"}
    read = {(reader.root, binding.pattern) for binding in reader.files if binding.access != "write"}
    # A session that only failures wake waits for nothing.
    return bool(written & read) or any(
        getattr(binding, "session", None) == writer.name and binding.on != "failed" for binding in reader.bindings
    )
