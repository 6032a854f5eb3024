"""The view of a strict session's next run, made while the session rests,
and a shell in it that waits to become the run's program.

`preparing` makes the view, the runner has a shell wait in it, and `LiveRun` takes that: bubblewrap needs some ten
milliseconds for a view, a shell one to wake. Nothing is believed unseen: at a start all is found out as ever, and the
shell is used only where the view that would be made now is the one it waits in. It does what it is told as a whole or
not at all: when the daemon dies it reads an end, and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence

from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.bubblewrap import BubblewrapLaunch, identify
from wakeful.runners.isolation.mounts import Mounts
from wakeful.runners.prepare.plan_cache import MOST_READY, NEXT_SUFFIX
from wakeful.runners.process import proc
from wakeful.runners.process.children import Children
from wakeful.runners.process.mark import can_mark, mark_of, marking, set_mark

# The first adds nothing to an environment but PWD, which is told anyway, so that it can become the program itself.
_PLAIN_SHELL, _ANY_SHELL = "/bin/dash", "/bin/sh"
_WAITING = ("-c", "echo; . /dev/stdin")
_IS_THERE = b"\n"
# Other shells have variables of their own, and none can set every name:
# who is started by this has exactly those that are told. It takes 0.9 ms.
_BECOME = b"/usr/bin/env -i"
_SETTABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MEANT_FOR_SHELLS = frozenset(
    {"IFS", "LINENO", "MAIL", "MAILCHECK", "MAILPATH", "OPTIND", "PPID", "PS1", "PS2", "PS4", "TERM", "HISTSIZE", "ENV"}
)
# bubblewrap, the first process of its namespace, and the shell.
_PROCESSES = 3
# What is shown is held: the space of a file that was removed, a disk that was unmounted.
_LONGEST_SECONDS = 600.0
_SWEEP_SECONDS = 0.002
_PATIENCE_SECONDS = 2.0


def can_wait(order: RunOrder) -> bool:
    """Not what is laid out for one run alone; and where a mark stands in the environment only,
    no process could be given one later."""
    is_plain = order.workspace is None and not order.repositories and not order.is_traced and not order.is_agent
    return order.confinement.level == "strict" and is_plain and can_mark()


class NextPlaces:
    """The folder of a session's next run and its write area, if it has one, until they are given their names."""

    def __init__(self, order: RunOrder) -> None:
        self.folder = f"{os.path.dirname(order.folder)}/{order.session}{NEXT_SUFFIX}"
        # On the same disk as those of runs, and not among them: what lies there has still to land.
        self.staging = (
            f"{os.path.dirname(order.staging)}{NEXT_SUFFIX}/{order.session}" if order.staging is not None else None
        )
        self._is_named = False

    def become(self, order: RunOrder) -> None:
        """What cannot be renamed is not what the view of this run shows, and will be found not to be."""
        self._is_named = True
        for place, name in ((self.folder, order.folder), (self.staging, order.staging)):
            if place is not None and name is not None:
                with contextlib.suppress(OSError):
                    os.rename(place, name)

    def remove(self) -> None:
        """Unless they are a run's: those that have these names now are another's."""
        if not self._is_named:
            shutil.rmtree(self.folder, ignore_errors=True)
            if self.staging is not None:
                shutil.rmtree(self.staging, ignore_errors=True)


class WaitingView:
    """From its spawn until it is released or given up. On the loop."""

    def __init__(self, view: BubblewrapLaunch, places: NextPlaces, children: Children, state: str) -> None:
        """The view and its places are its own. Raises OSError, and then nothing is left of them."""
        self.places = places
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_over = False
        # Known when its view is made.
        self.pids: tuple[int, ...] = ()
        self._view = view
        self._children = children
        self._state = state
        # Until it is a run's.
        self._mark = mark_of(state, places.folder)
        self._loop = asyncio.get_running_loop()
        self._shell = _PLAIN_SHELL if os.access(_PLAIN_SHELL, os.X_OK) else _ANY_SHELL
        with contextlib.ExitStack() as undoing, contextlib.ExitStack() as closing:
            undoing.callback(places.remove)
            undoing.callback(view.close)
            # Everybody's, and, when its view is made, its own.
            self._mounts = [Mounts("self")]
            undoing.callback(self._mounts[0].close)
            reader, self._orders = os.pipe()
            closing.callback(os.close, reader)
            undoing.callback(os.close, self._orders)
            self.output, writer = os.pipe()
            closing.callback(os.close, writer)
            undoing.callback(os.close, self.output)
            with marking(self._mark):
                self._popen = view(
                    lambda prefix=(), fds=(): _spawn((*prefix, self._shell, *_WAITING), fds, reader, writer)
                )
            self._pidfd = os.pidfd_open(self._popen.pid)
            self._children.spawned(self._popen.pid)
            undoing.pop_all()
        os.set_blocking(self._orders, False)
        self._loop.add_reader(self.output, self._take_word)
        self._loop.add_reader(self._pidfd, self._notice_end)
        self._expiring = self._loop.call_later(_LONGEST_SECONDS, self.give_up)

    def suits(self, view: BubblewrapLaunch) -> bool:
        """Is it what the view would be, if that were made now?"""
        # A mount goes with the file it lies on: whoever replaces a secret of /etc takes away what hid it here.
        if (
            self.is_over
            or not self.pids
            or not self._view.is_alike(view)
            or not all(mounts.are_same() for mounts in self._mounts)
        ):
            return False
        return all(identify(f"/proc/{self.pids[-1]}/root{place}") == found for place, found in view.list_shown())

    def release(self, mark: int, argv: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
        """Become a program of the run with this mark; its output is the caller's.

        None: nothing of it was begun, nor will be.
        """
        words = _spell(self._shell, argv, {**environment, "PWD": self._view.cwd})
        try:
            for pid in self.pids:
                set_mark(mark, pid)
            is_told = words is not None and not self.is_over and os.write(self._orders, words) == len(words)
        except OSError:
            is_told = False
        if not is_told:
            self.give_up()
            return None
        self._let_go()
        self._stop_watching()
        self.ended.set_result(None)
        return self._popen

    def give_up(self) -> None:
        """Safe to repeat. Its processes read an end, and end; then they are taken note of."""
        if not self.is_over:
            self._let_go()
            os.close(self.output)
            self.places.remove()

    def _let_go(self) -> None:
        self.is_over = True
        self._expiring.cancel()
        self._loop.remove_reader(self.output)
        os.close(self._orders)
        self._view.close()
        for mounts in self._mounts:
            mounts.close()

    def _take_word(self) -> None:
        """Its view is made, or cannot be made. Either way nothing more is needed of what it shows."""
        self._loop.remove_reader(self.output)
        pids = (self._popen.pid, *proc.descendants_of(self._popen.pid)) if os.read(self.output, 2) == _IS_THERE else ()
        if len(pids) == _PROCESSES and self._watch_mounts(pids[-1]):
            self.pids = pids
        self._view.close()

    def _watch_mounts(self, shell: int) -> bool:
        """From now on. False where one of them is gone already, or it is not ours to look at."""
        try:
            self._mounts.append(Mounts(shell))
            with open(f"/proc/{shell}/mountinfo", "rb") as file:
                mounted = {line.split(b" ")[4] for line in file}
        except OSError:
            return False
        covered = (
            *self._view.list_emptied(),
            *(place for place, found in self._view.list_shown() if found is not None),
        )
        return all(_escape(place) in mounted for place in covered)

    def _notice_end(self) -> None:
        self._stop_watching()
        self._popen.wait()
        self._children.gone(self._popen.pid)
        self.give_up()
        self._sweep()

    def _stop_watching(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)

    def _sweep(self) -> None:
        """bubblewrap does not wait for the first process of its namespace, which becomes our child."""
        if self._children.end_run(self._mark, self.places.folder, self._state, lambda _: None):
            self._loop.call_later(_SWEEP_SECONDS, self._sweep)
        else:
            self.ended.set_result(None)


class WaitingViews:
    """By session, those that ran last. On the loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, WaitingView] = {}
        self._alive: set[WaitingView] = set()

    def holds(self, session: str) -> bool:
        return session in self._waiting and not self._waiting[session].is_over

    def add(self, session: str, waiting: WaitingView) -> None:
        self.give_up(session)
        self._waiting[session] = waiting
        self._alive.add(waiting)
        waiting.ended.add_done_callback(lambda _: self._alive.discard(waiting))
        if len(self._waiting) > MOST_READY:
            self.give_up(next(iter(self._waiting)))

    def take(self, session: str) -> WaitingView | None:
        return self._waiting.pop(session, None)

    def give_up(self, session: str) -> None:
        if (waiting := self.take(session)) is not None:
            waiting.give_up()

    async def close(self) -> None:
        """Nothing more will be started: return when none of their processes is left, or none will go."""
        for session in list(self._waiting):
            self.give_up(session)
        if self._alive:
            await asyncio.wait([waiting.ended for waiting in self._alive], timeout=_PATIENCE_SECONDS)


def _spawn(argv: Sequence[str], fds: Sequence[int], orders: int, output: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv, cwd="/", env={}, stdin=orders, stdout=output, stderr=output, start_new_session=True, pass_fds=fds
    )


def _spell(shell: str, argv: Sequence[str], environment: Mapping[str, str]) -> bytes | None:
    """What to tell the shell; None where it cannot be told. In brackets: what was cut short is no command."""
    # What has this sign is taken for a variable by who becomes the program.
    if "=" in argv[0] or any(not name or "=" in name for name in environment):
        return None
    try:
        program = _quote(argv)
        if shell == _PLAIN_SHELL and all(
            _SETTABLE.fullmatch(name) and name not in _MEANT_FOR_SHELLS for name in environment
        ):
            variables = b" ".join(b"%s=%s" % (name.encode(), _quote((value,))) for name, value in environment.items())
            told = b"export " + variables + b"; exec " + program
        else:
            told = (
                b"exec "
                + _BECOME
                + b" "
                + _quote(f"{name}={value}" for name, value in environment.items())
                + b" "
                + program
            )
    except UnicodeEncodeError:
        return None
    return None if b"\0" in told else b"{ " + told + b" </dev/null\n}\n"


def _quote(words: Iterable[str]) -> bytes:
    return b" ".join(b"'" + os.fsencode(word).replace(b"'", b"'\\''") + b"'" for word in words)


def _escape(place: str) -> bytes:
    """As the kernel writes it."""
    words = os.fsencode(place).replace(b"\\", b"\\134")
    for letter in b" \t\n":
        words = words.replace(bytes([letter]), b"\\%03o" % letter)
    return words
