"""The journeys of one session between two hosts: two real daemons, each with its own state folder and project.

`migrate` carries the session there and home again, while the source, the target or the command itself is killed at
random. A move that was cut short is asked for again with the same command, as a person does. The oracle asks both hosts
where the session lives, and reads its ledgers by itself.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from e2e.box import WAKEFUL, Box
from storm.digest_program import digest_files
from wait_conditions import eventually

HERE = Path(__file__).parent
NAME = "traveller"
READS = "trip/*.txt"
MOVE = (WAKEFUL, "migrate", NAME, "--to", "ssh://other")
OUTPUT, JOURNAL = "out/traveller.txt", "out/journal.txt"
# A shared machine stalls. A change that was not dealt with after this time counts as lost.
PATIENCE_SECONDS = 180.0
# A move without a disturbance is complete after one command. A run that just began refuses it, and is waited for.
MOST_TRIES = 5
SPEC = f"""
objective: Keep a digest on two hosts.
bindings:
  in: {{file: "{READS}", settle: 20ms}}
  result: {{file: {OUTPUT}, access: write}}
  journal: {{file: {JOURNAL}, access: write}}
  work: {{file: digest_program.py, wake: false}}
run: {{command: [python3, migrating_program.py, {OUTPUT}, {JOURNAL}, "SECONDS", "{READS}"], retries: 2, timeout: 60s}}
"""
# The stub of ssh marks when the bundle has come to the other host, and when that host has taken it.
SSH = """#!/bin/sh
while [ "$1" != "--" ]; do shift; done; shift; shift
touch {folder}/carried
WAKEFUL_SOCKET={socket} "$@"
code=$?
touch {folder}/taken
exit $code
"""


@dataclass
class Learnt:
    """What the session was told, in order, and the marks of the checkpoints that were set."""

    messages: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)


class Journey:
    def __init__(self, home: Box, away: Box, rng: random.Random, note: Callable[[str, str], None]) -> None:
        self.home, self.away, self.rng, self._note = home, away, rng, note
        self.here = home
        self.learnt = Learnt()
        self._count = 0
        self.kills = 0
        seconds = str(rng.choice((0, 0.2, 0.5)))
        for box in (home, away):
            for name in ("trip", "out"):
                (box.folder / name).mkdir(exist_ok=True)
            for name in ("digest_program.py", "migrating_program.py"):
                shutil.copy(HERE / name, box.folder / name)
            box.write("trip/a.txt", f"first of {box.folder.name}\n")
            box.write(f"sessions.d/{NAME}.yaml", SPEC.replace("SECONDS", seconds).lstrip())
        self._make_ssh()

    @property
    def there(self) -> Box:
        return self.away if self.here is self.home else self.home

    def begin(self) -> None:
        """Wait for both hosts.

        Each has made a session of its copy of the spec; the one at home is the one that travels.
        """
        for box in (self.home, self.away):
            box.wait_at_rest(NAME, runs=1, seconds=PATIENCE_SECONDS)
        self.id = self.home.row(NAME)["id"]

    # -- what happens -------------------------------------------------------------------------

    def act(self) -> None:
        self.rng.choices((self.travel, self.write, self.send, self.learn, self.kill_away), (4, 3, 3, 2, 1))[0]()

    def write(self) -> None:
        """Write on either host. A change where the session is not is found when it comes there."""
        self._write(self.rng.choice((self.home, self.away)))

    def _write(self, box: Box) -> None:
        self._count += 1
        path = box.folder / "trip" / f"{self.rng.choice('abc')}.txt"
        path.write_text(f"{self._count} {'x' * self.rng.choice((1, 3000))}\n")
        self._note("write on a host of the traveller", f"{path.name} {self._say(box)}")

    def send(self) -> None:
        text = f"letter {self._count} {len(self.learnt.messages)}"
        done = self.here.run("send", NAME, text)
        self._check(done)
        assert done.returncode == 0, f"the traveller takes no message where it lives: {done.stderr}"
        self.learnt.messages.append(text)
        self._note("send to the traveller", text)
        refused = self.there.run("send", NAME, "not here")
        self._check(refused)
        # Before the first journey the other host has another session of this name.
        if self._is_here(self.there):
            assert refused.returncode == 1, f"a message was taken where the traveller does not live: {refused.stdout}"

    def learn(self) -> None:
        number = len(self.learnt.marks)
        for words in (
            ("remember", NAME, f"fact{number}", "known"),
            ("note", NAME, f"zebra{number} was seen"),
            ("save", NAME, "--as", f"mark{number}"),
        ):
            self.here.ask(*words)
        self.learnt.marks.append(f"mark{number}")
        self._note("facts, notes and checkpoints of the traveller", f"mark{number} {self._say(self.here)}")

    def kill_away(self) -> None:
        self.kills += 1
        self.away.kill()
        self._write(self.away)
        self.away.start()
        self._note("kill -9 of the other host", "")

    def travel(self) -> None:
        """Move to the other host, disturbed in one of many ways. A move that is left open is asked for again."""
        source, target = self.here, self.there
        self._write(target)
        victim = self.rng.choice(("nobody", "source", "target", "command", "both"))
        self._note(
            f"move, with {victim} killed" if victim != "nobody" else "move",
            f"from {self._say(source)} to {self._say(target)}",
        )
        self._start_move(source, victim)
        self.judge_places()
        if self._lives(source) and self.rng.random() < 0.5:
            self._note("move that did not begin", "it stays")
        else:
            self._complete(source, target)
            self.here = target
            self._note("arrival at home" if target is self.home else "arrival on the other host", "")
        # After `activate` the session runs whatever is owed. After `resume` it runs only for what changed.
        verb = self.rng.choice(("resume", "activate"))
        self._check(self.here.run(verb, NAME))

    def _start_move(self, source: Box, victim: str) -> None:
        for name in ("carried", "taken"):
            (source.folder / "bin" / name).unlink(missing_ok=True)
        command = subprocess.Popen(
            MOVE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=source.folder,
            env=self._environment(source),
            start_new_session=True,
        )
        if victim != "nobody":
            self._wait_for_moment(source, command)
            self._kill(source, victim, command)
        try:
            said = command.communicate(timeout=PATIENCE_SECONDS)[0]
        except subprocess.TimeoutExpired:
            os.killpg(command.pid, signal.SIGKILL)
            raise AssertionError(f"migrate did not end, with {victim} killed") from None
        for box in (self.home, self.away):
            if box.daemon is None:
                box.start()
        assert "Traceback" not in said, said
        self._note("", f"wakeful migrate: {command.returncode} {said.splitlines()[:1]}")

    def _wait_for_moment(self, source: Box, command: subprocess.Popen[str]) -> None:
        """Wait for a random moment. The move is asked for, or the other host takes the bundle, or the receipt comes."""
        stage, longest = self.rng.choice((("asked", 1.0), ("carried", 1.0), ("taken", 0.1)))
        if stage != "asked":
            with contextlib.suppress(AssertionError):
                eventually(lambda: (source.folder / "bin" / stage).exists() or command.poll() is not None)
        time.sleep(self.rng.uniform(0, longest))

    def _kill(self, source: Box, victim: str, command: subprocess.Popen[str]) -> None:
        target = self.away if source is self.home else self.home
        for box in {"source": (source,), "target": (target,), "both": (source, target)}.get(victim, ()):
            self.kills += 1
            box.kill()
        if victim == "command":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(command.pid, signal.SIGKILL) if self.rng.random() < 0.5 else command.kill()
        # Whatever came of the move, the session must not have been taken twice.
        for box in (self.home, self.away):
            if box.daemon is None and self.rng.random() < 0.5:
                box.start()

    def _complete(self, source: Box, target: Box) -> None:
        """Repeat the same command until the session is there.

        Nothing disturbs it: only a run under way may refuse it.
        """
        for _ in range(MOST_TRIES):
            if self._is_here(source) and "moved to another host" in (source.row(NAME)["reason"] or ""):
                assert self._lives(target), (
                    "the source says that the traveller has moved, and it does not live at the target"
                )
                return
            if self._lives(source):
                source.wait_at_rest(NAME, seconds=PATIENCE_SECONDS)
            done = subprocess.run(
                MOVE,
                capture_output=True,
                text=True,
                check=False,
                cwd=source.folder,
                env=self._environment(source),
                timeout=PATIENCE_SECONDS,
            )
            self._check(done)
            self._note("move asked for again", f"{done.returncode} {(done.stdout + done.stderr).splitlines()[:1]}")
            self.judge_places()
            is_refused = done.returncode == 1 and "running" in done.stderr
            assert done.returncode == 0 or is_refused or self._lives(target), (
                f"a move that nobody disturbs is refused: {done.stdout}{done.stderr}"
            )
            if is_refused and not self._lives(source):
                # The session at the target is running. On a fast machine the tries would be over before it rests.
                target.wait_at_rest(NAME, seconds=PATIENCE_SECONDS)
        raise AssertionError(f"the traveller did not move in {MOST_TRIES} tries")

    # -- what must hold -----------------------------------------------------------------------

    def judge_places(self) -> None:
        living = [self._say(box) for box in (self.home, self.away) if self._lives(box)]
        assert len(living) <= 1, f"the traveller lives on two hosts: {living}"

    def judge(self) -> None:
        """Check the session at rest.

        It lives where it should, has dealt with the files and messages of that host, and never ran on both hosts at
        once.
        """
        box = self.here
        self._check(box.run("resume", NAME))
        eventually(self._is_true, PATIENCE_SECONDS, what=f"the traveller has dealt with everything {self._say(box)}")
        row = eventually(self._find_rest, PATIENCE_SECONDS, what=f"the traveller at rest {self._say(box)}")
        assert not (row["reason"] or ""), f"the traveller sleeps where it lives: {row}"
        self.judge_places()
        assert self._lives(box), f"the traveller lives nowhere: {row}"
        self._judge_runs()
        self._judge_messages()

    def judge_past(self) -> None:
        """Bring the session home and check all that happened.

        Both logs have one history and are sound, and every position can be read.
        """
        if self.here is self.away:
            self._check(self.away.run("resume", NAME))
            self.away.wait_at_rest(NAME, seconds=PATIENCE_SECONDS)
            self._complete(self.away, self.home)
            self.here = self.home
            self._note("arrival at home", "")
        self.judge()
        records = self.home.log(NAME)
        assert [one["seq"] for one in records] == list(range(1, len(records) + 1)), "the traveller's log has a gap"
        if self._is_here(self.away):
            hashes, there = [one["hash"] for one in records], [one["hash"] for one in self.away.log(NAME)]
            assert hashes[: len(there)] == there, "the logs of both hosts are not one history"
        facts = {fact["key"] for fact in self.home.json("facts", NAME)}
        assert facts == {f"fact{number}" for number in range(len(self.learnt.marks))}, facts
        for number, mark in enumerate(self.learnt.marks):
            shown = self.home.json("show", NAME, "--at", mark)
            assert len(shown["facts"]) == number + 1, f"{mark}: {shown['facts']}"
            assert f"zebra{number}" in self.home.ask("search", f"zebra{number}"), f"zebra{number} is not found at home"
        middle = records[len(records) // 2]["seq"]
        assert self.home.json("show", NAME, "--at", str(middle))["seq"] == middle
        self._judge_notes(records)
        for box in (self.home, self.away):
            done = box.run("verify")
            assert done.returncode == 0, done.stdout + done.stderr

    def _is_true(self) -> bool:
        return self.here.read(OUTPUT) == digest_files(str(self.here.folder), [READS])

    def _find_rest(self) -> dict[str, object] | None:
        row = self.here.row(NAME)
        return row if row["state"] != "running" and not row["owed"] and row["queued"] is None else None

    def _judge_runs(self) -> None:
        """Check that no run began on one host while another was under way on the other.

        The session's own journals tell.
        """
        spans = [(box, *span) for box in (self.home, self.away) for span in read_spans(box.lines(JOURNAL), self.id)]
        for box, began, ended in spans:
            for other, start, _ in spans:
                assert other is box or not began < start < ended, (
                    f"two runs at once: {began} to {ended} {self._say(box)}, {start} {self._say(other)}"
                )

    def _judge_messages(self) -> None:
        """Check that each message is there once and in order, and was dealt with by a run that succeeded."""
        records = self.here.log(NAME)
        added = [one["payload"] for one in records if one["kind"] == "message_added"]
        texts = [one["text"] for one in added]
        assert texts == self.learnt.messages, f"messages: {self.learnt.messages} were taken, {texts} are recorded"
        finished = {
            one["payload"]["run"]
            for one in records
            if one["kind"] == "run_finished" and one["payload"]["outcome"] == "succeeded"
        }
        causes = [
            cause
            for one in records
            if one["kind"] == "run_started" and one["payload"]["run"] in finished
            for cause in one["payload"]["causes"]
        ]
        dealt = max((int(cause["new"]) for cause in causes if cause["kind"] == "message"), default=0)
        assert dealt >= len(added), f"{len(added)} messages were taken, and the runs have dealt with {dealt}"

    def _judge_notes(self, records: list[dict[str, object]]) -> None:
        """Check that the scratch folder came along: each run that succeeded has its line."""
        notes = (self.home.state / "scratch" / self.id / "notes").read_text().split()
        for one in records:
            payload = one["payload"]
            if one["kind"] == "run_finished" and payload["outcome"] == "succeeded":
                assert any(note.endswith(f".{payload['run']}") for note in notes), (
                    f"run {payload['run']} left no note: {notes}"
                )

    # -- small things -------------------------------------------------------------------------

    def close(self) -> None:
        self.away.close()

    def _is_here(self, box: Box) -> bool:
        row = box.find_row(NAME)
        return row is not None and row["id"] == self.id

    def _lives(self, box: Box) -> bool:
        row = box.find_row(NAME)
        return (
            row is not None
            and row["id"] == self.id
            and not (row["reason"] or "").startswith(("moved to another host", "moving to"))
        )

    def _say(self, box: Box) -> str:
        return "at home" if box is self.home else "away"

    def _check(self, done: subprocess.CompletedProcess[str]) -> None:
        assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr

    def _make_ssh(self) -> None:
        for box, other in ((self.home, self.away), (self.away, self.home)):
            program = box.folder / "bin" / "ssh"
            program.parent.mkdir(exist_ok=True)
            program.write_text(SSH.format(folder=program.parent, socket=other.socket))
            program.chmod(0o755)

    def _environment(self, box: Box) -> dict[str, str]:
        usual = box.environment()
        return usual | {"PATH": f"{box.folder / 'bin'}:{usual['PATH']}"}


def read_spans(lines: list[str], session_id: str) -> list[tuple[int, int]]:
    """Return when each run of the session began and ended.

    A run that was killed has no end, so its beginning stands for both.
    """
    spans: dict[str, tuple[int, int]] = {}
    for line in lines:
        verb, run, at = line.split()
        if run.startswith(session_id):
            spans[run] = (spans[run][0], int(at)) if verb == "ended" else (int(at), int(at))
    return list(spans.values())
