"""One storm: a real daemon on a project to which everything happens.

The daemon is killed again and again, and an oracle computes the truth by itself. At calm points nothing happens for a
while. Then every session must be at rest, with the result that the present files give. No change may be lost, no
session may sleep without a reason of ours, and the log must be whole. `run.py` lives through many storms.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import time
from pathlib import Path
from typing import Any

from e2e.box import Box
from storm.digest_program import Poisoned, digest_files, find_tree
from storm.migrations import NAME as TRAVELLER
from storm.migrations import PATIENCE_SECONDS, Journey
from storm.project import Declared, Project
from wait_conditions import eventually

# How long to wait for the run of a session whose input was just saved, before a call stops it.
LONGEST_START_SECONDS = 5.0
SLOW = "slow"
# How often sessions at rest may run once more, for changes that no watcher reported.
MOST_SWEEPS = 3
TERMS = 3
ACTIONS = 14


class Lost(AssertionError):
    """A broken promise: what was found, and the whole history that led to it."""


class StormBox(Box):
    """A box whose runs are confined as usual: outputs go to out/, and nothing else is open."""

    def reach(self) -> str:
        return ""


class Storm:
    def __init__(
        self, seed: int, folder: Path, *, can_mount: bool, can_be_strict: bool, has_journeys_alone: bool = False
    ) -> None:
        self.rng = random.Random(seed)
        self.has_journeys_alone = has_journeys_alone
        self.box = StormBox(folder)
        self.project = Project(folder, self.rng, can_mount=can_mount, can_be_strict=can_be_strict)
        self.history: list[str] = []
        # How often each kind of event happened.
        self.counts = self.project.counts
        self.journey = Journey(
            self.box, StormBox(folder.with_name(f"{folder.name}.away")), self.rng, self._note_journey
        )
        self.messages: list[str] = []
        # Sessions whose changes a person gave up. Their results may be old until they are run again.
        self.given_up: set[str] = set()
        self.renamed: dict[str, str] = {}

    def live_through(self) -> None:
        try:
            self.box.start()
            self.journey.away.start()
            # Sessions that take every commit begin with what is there at the first look.
            self._judge()
            self.journey.begin()
            for _ in range(TERMS):
                self._live_through_term()
                self._calm_down()
                self._judge()
                self.journey.judge()
            self.journey.judge_past()
            self._judge_log()
        except Exception as error:
            # A daemon that has ended, or a command that fails where it may not, breaks a promise as well.
            raise Lost(
                "\n".join(
                    [
                        f"{type(error).__name__}: {error}",
                        "",
                        *self.history,
                        *map(read_end, (self.box, self.journey.away)),
                    ]
                )
            ) from error
        finally:
            self.project.close()
            self.journey.close()
            self.box.close()

    # -- what happens -------------------------------------------------------------------------

    def _live_through_term(self) -> None:
        """Do some random actions, among them at least one journey."""
        count = self.rng.randrange(4, ACTIONS)
        journey = self.rng.randrange(count)
        for number in range(count):
            if number == journey:
                self.journey.travel()
            elif self.has_journeys_alone:
                self.journey.act()
            else:
                self._act()

    def _act(self) -> None:
        choice = self.rng.random()
        if choice < 0.10:
            self._note("kill -9 and start again")
            self.counts["kill -9"] += 1
            self.box.kill()
            self._act_offline()
            self.box.start()
        elif choice < 0.13:
            self._note("stop and start again")
            self.counts["stop and start"] += 1
            self.box.stop()
            self._act_offline()
            self.box.start()
        elif choice < 0.16:
            self._hold_still()
        elif choice < 0.28:
            self._call()
        elif choice < 0.40:
            self.journey.act()
        else:
            self._note(self.project.act())
        time.sleep(self.rng.choice((0, 0, 0.01, 0.1, 0.4)))

    def _act_offline(self) -> None:
        for _ in range(self.rng.randrange(3)):
            self._note(f"(offline) {self.project.act()}")

    def _hold_still(self) -> None:
        daemon = self.box.daemon
        assert daemon is not None
        self.counts["daemon held still"] += 1
        daemon.send_signal(signal.SIGSTOP)
        try:
            for _ in range(self.rng.randrange(1, 4)):
                self._note(f"(stopped) {self.project.act()}")
        finally:
            daemon.send_signal(signal.SIGCONT)

    def _call(self) -> None:
        name = self.rng.choice([*self.project.sessions, "mailbox"])
        now = self.renamed.get(name, name)
        match self.rng.choice(("activate", "cancel", "interrupt", "sleep", "send", "rename", "save", "show")):
            case "send":
                text = f"message {len(self.messages)}"
                # A message that is sent twice with one key counts once.
                for _ in range(self.rng.choice((1, 2))):
                    done = self.box.run(
                        "send", self.renamed.get("mailbox", "mailbox"), text, "--key", f"k{len(self.messages)}"
                    )
                if done.returncode == 0:
                    self.counts["send"] += 1
                    self.messages.append(text)
                self._note(f"send {text}: {done.returncode}")
            case "sleep":
                self._run("sleep", now)
                self._note(self.project.act())
                self._run("resume", now)
            case "rename":
                new = now.removesuffix("-x") if now.endswith("-x") else f"{now}-x"
                if self._run("rename", now, new) == 0:
                    self.renamed[name] = new
            case "save":
                self._run("save", now, "-o", str(self.box.folder / "saved.bundle"))
            case "cancel" | "interrupt" as verb:
                self._stop_run(verb)
            case verb:
                self._run(verb, now)

    def _stop_run(self, verb: str) -> None:
        """Stop a run that takes its time. It may have ended before."""
        now = self.renamed.get(SLOW, SLOW)
        self._note(self.project.wake_slow())
        with contextlib.suppress(AssertionError):
            eventually(lambda: self.box.row(now)["state"] == "running", LONGEST_START_SECONDS)
        if self._run(verb, now) == 0:
            self.given_up.add(SLOW)

    def _run(self, *words: str) -> int:
        done = self.box.run(*words)
        if done.returncode == 0:
            self.counts[words[0]] += 1
        self._note(f"wakeful {' '.join(words)}: {done.returncode} {(done.stdout + done.stderr).splitlines()[:1]}")
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        return done.returncode

    def _note(self, words: str) -> None:
        self.history.append(words)

    def _note_journey(self, kind: str, words: str) -> None:
        self.history.append(f"(journey) {kind} {words}")
        if kind:
            self.counts[kind] += 1

    # -- what must hold -----------------------------------------------------------------------

    def _calm_down(self) -> None:
        self.project.calm_down()
        self._note("-- calm")
        for name in sorted(self.given_up):
            self._run("activate", self.renamed.get(name, name))
        self.given_up.clear()
        for row in self.box.rows():
            if (row["reason"] or "").startswith("crashing") and row["name"] != TRAVELLER:
                self._wake_crashing(row["name"])

    def _wake_crashing(self, name: str) -> None:
        """Activate a session that is held as crashing.

        Three runs of one wake were lost with killed daemons (rule 22).
        """
        outcomes = [one["payload"]["outcome"] for one in self.box.log(name) if one["kind"] == "run_finished"]
        assert outcomes[-3:] == ["lost"] * 3, f"{name} sleeps as crashing after {outcomes[-3:]}"
        self.counts["asleep after three kills in one wake"] += 1
        self._run("activate", name)

    def _judge(self) -> None:
        for session in self.project.sessions.values():
            eventually(
                lambda one=session: self._is_true(one),
                PATIENCE_SECONDS,
                what=f"{session.name} has dealt with everything",
            )
        # The sweep finds a write through another hard link late, and once.
        for _ in range(MOST_SWEEPS):
            before, after = self._watch_rest()
            if before == after:
                return
        raise AssertionError(f"runs go on at rest: {before} -> {after}")

    def _watch_rest(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return how many runs each session had when all came to rest, and how many a moment later."""
        rows = eventually(self._find_rest, PATIENCE_SECONDS, what="all sessions at rest")
        for row in rows:
            if row["name"].startswith(TRAVELLER):
                continue
            assert row["state"] in ("suspended", "sleeping"), row
            assert not (row["reason"] or "").startswith(("loop", "crashing", "undeclared")), row
        runs = {row["name"]: row["runs"] for row in rows if not row["name"].startswith(TRAVELLER)}
        for session in self.project.sessions.values():
            assert self._is_true(session), f"{session.name} is not what it was a moment ago"
        return runs, {row["name"]: row["runs"] for row in self.box.rows() if row["name"] in runs}

    def _is_true(self, session: Declared) -> bool:
        folder = self.box.folder
        found = self.box.read(session.output)
        if session.ledger is not None:
            return self._has_every_commit(session.ledger, found.split())
        if session.tree is not None:
            return found == find_tree(str(folder / session.tree[0]), session.tree[1])
        try:
            wanted = digest_files(str(folder), list(session.reads))
        except Poisoned:
            return False
        return found == wanted

    def _has_every_commit(self, line: str, ledger: list[str]) -> bool:
        """Return whether the ledger has every commit.

        It may have no other commit but the one it began with. After a crash one may be there twice in a row.
        """
        taken = list(dict.fromkeys(one for one in ledger if one != self.project.base))
        wanted = self.project.list_commits(line)
        assert set(taken) <= set(wanted), (
            f"{line}: {sorted(set(taken) - set(wanted))} were taken, and are none that change src"
        )
        return len(taken) == len(wanted) and (line == "all" or taken == wanted)

    def _find_rest(self) -> list[dict[str, Any]] | None:
        rows = self.box.rows()
        is_rest = all(row["state"] != "running" and not row["owed"] and row["queued"] is None for row in rows)
        return rows if is_rest else None

    def _judge_log(self) -> None:
        names = [row["name"] for row in self.box.rows()]
        for name in names:
            records = self.box.log(name)
            assert [one["seq"] for one in records] == list(range(1, len(records) + 1)), f"{name} has a gap"
            started = [one["payload"]["run"] for one in records if one["kind"] == "run_started"]
            finished = [one["payload"]["run"] for one in records if one["kind"] == "run_finished"]
            assert started == finished, f"{name}: {started} were started, {finished} ended"
            without = [one for one in records if one["kind"] == "run_started" and not one["payload"]["causes"]]
            assert not without, f"{name} ran without a cause: {without}"
            self.counts["runs"] += len(started)
            self.counts.update(f"run {one['payload']['outcome']}" for one in records if one["kind"] == "run_finished")
        texts = [
            one["payload"]["text"]
            for one in self.box.log(self.renamed.get("mailbox", "mailbox"))
            if one["kind"] == "message_added"
        ]
        assert texts == self.messages, f"messages: {self.messages} were taken, {texts} are recorded"
        done = self.box.run("verify")
        assert done.returncode == 0, done.stdout + done.stderr
        told = json.loads(self.box.run("doctor", "--json").stdout)
        assert not [check for check in told if check["name"] == "defects" and check["verdict"] != "good"], told

    @property
    def kills(self) -> int:
        return self.counts["kill -9"] + self.journey.kills


def read_end(box: Box) -> str:
    """Return the last lines that a daemon printed."""
    lines = box.output.read_text(errors="replace").splitlines() if box.output.exists() else []
    return "\n".join(["", f"-- {box.folder}", *lines[-40:]])
