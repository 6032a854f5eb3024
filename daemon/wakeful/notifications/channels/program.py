"""Messages to a program, and to the desktop by notify-send.

The program runs as the daemon's user, without a shell and without isolation. So a program that a session may write is
refused. The program gets the message as JSON on standard input, a few variables, and limits of time, CPU and file size.
When it ends, its process group is killed. If it fails, the reported problem contains the end of its output.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import os
import resource
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence

from wakeful.core.spec.notifier import CommandChannel
from wakeful.notifications.messages import Delivered, Message, Refused, Sent, as_json, as_text, variables_of

_CPU_SECONDS = 60
_FILE_BYTES = 64 * 1024 * 1024
_QUOTED_BYTES = 500
DESKTOP_PROGRAM = "notify-send"
_DESKTOP_TEXT = 400


class Programs:
    """Runs programs. `environ` is the environment of every program; the variables of the message are added.
    `find_writer` returns the name of a session that may write a path, or None."""

    def __init__(self, folder: str, environ: Mapping[str, str], find_writer: Callable[[str], str | None]) -> None:
        self._folder = folder
        self._environ = dict(environ)
        self._find_writer = find_writer

    async def send(self, channel: CommandChannel, message: Message) -> Sent:
        return await self._run(channel.argv, message)

    async def show(self, message: Message) -> Sent:
        urgency = "critical" if message.is_urgent else "normal"
        text = as_text(message)
        body = html.escape(text if len(text) <= _DESKTOP_TEXT else text[: _DESKTOP_TEXT - 1] + "…", quote=False)
        argv = (DESKTOP_PROGRAM, "--app-name=wakeful", f"--urgency={urgency}", "--", message.title, body)
        if self._find(DESKTOP_PROGRAM) is None:
            return Refused(f"there is no {DESKTOP_PROGRAM} here; install libnotify (Debian: libnotify-bin)")
        return await self._run(argv, message)

    def _find(self, name: str) -> str | None:
        path = name if "/" not in name else os.path.join(self._folder, name)
        return shutil.which(path, path=self._environ.get("PATH", ""))

    def _find_problem(self, program: str, argv: Sequence[str]) -> str | None:
        """Return a problem if a run may write the program or a file among its arguments. By changing that file, the run
        could escape its isolation."""
        named = (program, *(os.path.join(self._folder, word) for word in argv[1:] if "/" in word or "." in word))
        for path in named:
            if os.path.isfile(path) and (writer := self._find_writer(os.path.realpath(path))) is not None:
                return f"runs of {writer} may write {path}, so it is not started; move it out of their reach"
        return None

    async def _run(self, argv: Sequence[str], message: Message) -> Sent:
        program = self._find(argv[0])
        if program is None:
            return Refused(f"there is no program {argv[0]}; name it with its path, or put it on the daemon's PATH")
        if (problem := self._find_problem(program, argv)) is not None:
            return Refused(problem)
        # Files instead of pipes, so that a grandchild that keeps them open does not delay us.
        given, output = os.memfd_create("message"), os.memfd_create("output")
        try:
            os.write(given, as_json(message))
            os.lseek(given, 0, os.SEEK_SET)
            code = await self._await(program, argv, given, output, message)
            said = _read_tail(output)
        except OSError as error:
            return Refused(f"{argv[0]}: {error.strerror or error}")
        finally:
            os.close(given)
            os.close(output)
        if code == 0:
            return Delivered(f"{argv[0]} ended with 0")
        how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
        return Refused(f"{argv[0]} {how}" + (f": {said}" if said else ""))

    async def _await(self, program: str, argv: Sequence[str], given: int, output: int, message: Message) -> int:
        # Spawn on the loop, like every process of the daemon. A process that is spawned in a thread may get the mark of
        # a run.
        process = await asyncio.create_subprocess_exec(
            program,
            *argv[1:],
            cwd=self._folder,
            env={**self._environ, **variables_of(message)},
            stdin=given,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(process.pid, resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))
            return await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if process.returncode is None:
                await process.wait()


def _read_tail(output: int) -> str:
    size = os.lseek(output, 0, os.SEEK_END)
    found = os.pread(output, _QUOTED_BYTES, max(0, size - _QUOTED_BYTES))
    return " ".join(found.decode("utf-8", "replace").split())
