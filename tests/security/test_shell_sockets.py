"""An agent's shell cannot reach sockets that are files. A socket pair does not get around the refusal to make a socket.

The shell runs under the socket filter of an agent's tools. Without the filter (`narrowing` is None, as for a session
without isolation), each way works.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
import sys
from pathlib import Path

import pytest

from wakeful.agents.tools.bound_files import Bounds
from wakeful.agents.tools.shell import ShellTool
from wakeful.agents.tools.shell_confinement import narrow
from wakeful.runners.isolation.landlock import probe_abi
from wakeful.runners.isolation.seccomp import is_known_machine

pytestmark = pytest.mark.skipif(
    probe_abi() == 0 or not is_known_machine(), reason="SHELL NOT TESTED: nothing can be confined here"
)

# One half of a pair connects or sends to a path. This works for datagrams, and for raw sockets, which the kernel makes
# datagrams.
LEAVE = """
import socket
one, other = socket.socketpair(socket.AF_UNIX, {kind})
{before}
one.{do}
print("left")
"""


class Desk:
    """An agent's shell in a folder, and a socket file of another program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bus = folder / "bus"
        (folder / "out").mkdir()
        environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder / "out")}
        self._environ = environ
        self._bounds = Bounds.build(str(folder), [], ["out/"], str(folder / "out"))

    def use(self, text: str, *, is_narrow: bool, network: bool | tuple[int, ...] = False) -> str:
        narrowing = narrow(self._bounds, self._environ, network=network) if is_narrow else None
        (shell,) = ShellTool(str(self.folder), narrowing, self._environ).list_tools()
        line = f"{shlex.quote(sys.executable)} -I -S -c {shlex.quote(text)} 2>&1"
        return asyncio.run(shell.carry_out({"line": line}, "1")).text


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize(
    ("kind", "do", "network"),
    [
        ("socket.SOCK_DGRAM", "connect(PATH)", False),
        ("socket.SOCK_DGRAM", "connect(PATH)", True),
        ("socket.SOCK_DGRAM | socket.SOCK_CLOEXEC", "connect(PATH)", (9,)),
        ("socket.SOCK_DGRAM", "sendto(b'stolen', PATH)", False),
        ("socket.SOCK_RAW", "connect(PATH)", False),
    ],
)
def test_a_pair_of_datagram_sockets_reaches_no_path(
    desk: Desk, kind: str, do: str, network: bool | tuple[int, ...]
) -> None:
    """The kernel would connect such a half to any path. So the shell cannot make the pair at all."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(desk.bus))
        text = LEAVE.format(kind=kind, before="", do=do.replace("PATH", repr(str(desk.bus))))
        assert "left" in desk.use(text, is_narrow=False)
        held = desk.use(text, is_narrow=True, network=network)
        assert "Permission denied" in held and "left" not in held


@pytest.mark.parametrize("before", ["", "other.close()"])
@pytest.mark.parametrize("kind", ["socket.SOCK_STREAM", "socket.SOCK_SEQPACKET"])
def test_a_pair_of_streams_leads_nowhere_and_stays(desk: Desk, kind: str, before: str) -> None:
    """The kernel itself refuses to connect either half again, also after the other is closed.

    So programs may keep these pairs.
    """
    with socket.socket(socket.AF_UNIX, eval(kind)) as server:
        server.bind(str(desk.bus))
        server.listen()
        for do in (f"connect({str(desk.bus)!r})", f"sendto(b'stolen', {str(desk.bus)!r})", "listen()"):
            if kind == "socket.SOCK_SEQPACKET" and do.startswith("sendto"):
                # Such a socket ignores the address, and sends to the other half.
                continue
            said = desk.use(LEAVE.format(kind=kind, before=before, do=do), is_narrow=False)
            assert "left" not in said and "Error" in said
        assert "exit code 0" in desk.use(f"import socket; socket.socketpair(socket.AF_UNIX, {kind})", is_narrow=True)
