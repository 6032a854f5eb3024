"""The shell of an agent: it does its work, and an attacker in it cannot reach the thinking process or its secrets.

Every attack has a control: the same command succeeds outside of the narrower domain. So the domain causes the refusal.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from e2e.box import Box
from wait_conditions import eventually, eventually_async
from wakeful.agents.contract import ToolResult
from wakeful.agents.tools.bound_files import Bounds
from wakeful.agents.tools.shell import ShellTool
from wakeful.agents.tools.shell_confinement import narrow
from wakeful.agents.tools.tool import KEPT_BYTES
from wakeful.runners.isolation.bubblewrap import find_obstacle
from wakeful.runners.isolation.landlock import probe_abi

pytestmark = pytest.mark.skipif(
    probe_abi() == 0, reason="this kernel has no Landlock: no shell can be kept narrower than its run"
)

TOKEN, KEY, VARIABLE = "the-token-of-the-run", "the-key-of-the-model", "a-key-in-a-variable"


class Yard:
    """A root with bound paths, and beside it the content of a run's own folder."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.run = folder / "runs/r1"
        self.scratch = folder / "scratch"
        for made in (self.root / "in", self.root / "out", self.root / "other", self.run / "secrets", self.scratch):
            made.mkdir(parents=True)
        (self.root / "in/data").write_text("bound\n")
        (self.root / "other/data").write_text("unbound\n")
        (self.run / "token").write_text(TOKEN)
        (self.run / "secrets/key").write_text(KEY)
        self.socket = folder / "w.sock"
        self.environ = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(self.scratch), "MODEL_KEY": VARIABLE, "WAKEFUL_SESSION": "desk",
            "WAKEFUL_TOKEN_FILE": str(self.run / "token"), "WAKEFUL_SECRET_KEY": str(self.run / "secrets/key"), "WAKEFUL_SOCKET": str(self.socket),
        }  # fmt: skip
        self.bounds = Bounds.build(str(self.root), ["in/"], ["out/"], str(self.scratch))

    def tool(self, *, is_narrow: bool = True, network: bool | tuple[int, ...] = False) -> ShellTool:
        return ShellTool(
            str(self.root), narrow(self.bounds, self.environ, network=network) if is_narrow else None, self.environ
        )

    async def start(
        self, line: str = "", *, is_narrow: bool = True, network: bool | tuple[int, ...] = False, **more: object
    ) -> ToolResult:
        (shell,) = self.tool(is_narrow=is_narrow, network=network).list_tools()
        return await shell.carry_out({**({"line": line} if line else {}), **more}, "1")

    def use(
        self, line: str = "", *, is_narrow: bool = True, network: bool | tuple[int, ...] = False, **more: object
    ) -> str:
        return asyncio.run(self.start(line, is_narrow=is_narrow, network=network, **more)).text

    def python(self, text: str) -> str:
        return f"{shlex.quote(sys.executable)} -I -S -c {shlex.quote(text)} 2>&1"


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


def test_a_command_works_on_what_is_bound(yard: Yard) -> None:
    """A command runs in the root, with programs of the system, and reads and writes bound paths.

    It is a line for a shell, or a list of words without a shell.
    """
    assert yard.use("cat in/data; echo made > out/new; cp out/new $TMPDIR/copy; pwd").endswith(f"bound\n{yard.root}\n")
    assert (yard.root / "out/new").read_text() == "made\n" and (yard.scratch / "copy").read_text() == "made\n"
    assert yard.use(argv=["printf", "%s", "a b; $HOME"]).endswith(":\na b; $HOME")
    assert yard.use("exit 3").startswith("exit code 3, after")
    assert "exit code 137 (SIGKILL)" in yard.use("kill -9 $$")
    assert "exit code 127" in yard.use(argv=["no-such-program"])
    assert "give either line or argv" in yard.use() and "give either line or argv" in yard.use("true", argv=["true"])
    assert "NUL" in yard.use("a\0b")
    assert "Permission denied" in yard.use("cat other/data") and "unbound" in yard.use(
        "cat other/data", is_narrow=False
    )
    assert "exit code 0" in yard.use("yes | head -c 100000 > /dev/null")


@pytest.mark.parametrize(
    "line",
    [
        'cat "{run}/token" "{run}/secrets/key"',
        "cat ../runs/r1/token ../runs/r1/secrets/*",
        'cat "/proc/self/root{run}/token"',
        'cd "{run}" && cat token',
        'ln -s "{run}/token" out/link && cat out/link; rm -f out/link',
        'ln "{run}/token" out/hard && cat out/hard; rm -f out/hard',
        'cp -r "{run}" out/copy && cat out/copy/token; rm -rf out/copy',
        'mv "{run}/token" out/moved && cat out/moved; mv out/moved "{run}/token"',
        "cat /proc/$PPID/cwd/../runs/r1/token",
        "for p in /proc/[0-9]*; do cat $p/root{run}/token; done 2>/dev/null",
        'tar c "{run}" 2>&1',
        "env; cat /proc/{pid}/environ | tr '\\0' '\\n'",
    ],
)  # fmt: skip
def test_the_token_and_the_keys_are_out_of_reach(yard: Yard, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither names, links, /proc nor moving the files reveals them. Without the domain, these attacks work."""
    written = line.format(run=yard.run, pid=os.getpid())
    found = yard.use(written)
    assert TOKEN not in found and KEY not in found and VARIABLE not in found and "WAKEFUL_TOKEN_FILE" not in found
    assert (yard.run / "token").read_text() == TOKEN
    if not line.startswith("env"):
        assert TOKEN in yard.use(written, is_narrow=False)


def test_the_process_that_thinks_cannot_be_looked_into_or_ended(yard: Yard) -> None:
    """Its memory holds the keys, and its descriptors lead to the daemon.

    Neither can be opened, and no signal reaches it or the keeper.
    """
    attack = yard.python(
        f"import os\nfor place in ('mem', 'environ', 'maps', 'fd/0', 'cwd/.', 'root/.'):\n"
        f"    path = '/proc/{os.getpid()}/' + place\n"
        "    try: os.close(os.open(path, os.O_RDONLY)); print(place, 'reached')\n"
        "    except OSError as error: print(place, 'refused')\n"
        f"for pid in ({os.getpid()}, os.getppid()):\n"
        "    try: os.kill(pid, 0); print('signal reached')\n"
        "    except OSError: print('signal refused')"
    )
    narrow_found, bare_found = yard.use(f"exec {attack}"), yard.use(f"exec {attack}", is_narrow=False)
    assert "reached" not in narrow_found and narrow_found.count("refused") == 8, narrow_found
    assert bare_found.count("reached") == 8, bare_found


@contextlib.contextmanager
def listening(family: int, address: object) -> Iterator[list[bytes]]:
    """Listen at an address. Yield the list of received bytes."""
    heard: list[bytes] = []
    server = socket.socket(family, socket.SOCK_STREAM)
    server.bind(address)  # type: ignore[arg-type]
    server.listen()

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(5)
                    heard.append(connection.recv(100))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield heard
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)


def test_the_control_socket_is_out_of_reach(yard: Yard) -> None:
    """A shell cannot connect to a Unix socket, even if the session has a network. Outside of the domain it can."""
    attack = yard.python(
        f"import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect({str(yard.socket)!r})\ns.sendall(b'hello')\nprint('sent')"
    )
    with listening(socket.AF_UNIX, str(yard.socket)) as heard:
        assert "Permission denied" in yard.use(attack) and "Permission denied" in yard.use(attack, network=True)
        assert heard == []
        assert "sent" in yard.use(attack, is_narrow=False)
        eventually(lambda: heard == [b"hello"])


def test_the_network_is_as_the_session_has_it(yard: Yard) -> None:
    """No network, neither TCP nor UDP, or the whole network, or the named ports."""
    with listening(socket.AF_INET, ("127.0.0.1", 0)) as heard, listening(socket.AF_INET, ("127.0.0.1", 0)):
        ports = [
            connection.laddr.port
            for connection in psutil.Process().net_connections("tcp4")
            if connection.status == "LISTEN"
        ]
        first, second = ports[:2]
        attacks = [
            yard.python(
                f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 2).sendall(b'hello')\nprint('sent')"
            )
            for port in (first, second)
        ]
        datagram = yard.python(
            "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))\nprint('sent')"
        )
        for attack in (*attacks, datagram):
            assert "Permission denied" in yard.use(attack)
            assert "sent" in yard.use(attack, network=True) and "sent" in yard.use(attack, is_narrow=False)
        assert "sent" in yard.use(attacks[0], network=(first,))
        assert "Permission denied" in yard.use(attacks[1], network=(first,))
        assert heard
    # A socket pair inside one process is allowed.
    assert "exit code 0" in yard.use(yard.python("import socket\nsocket.socketpair()"))


def alive(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if mark in " ".join(process.info["cmdline"] or ()):
            found.append(process)
    return found


@pytest.mark.parametrize(
    "line",
    [
        "sleep {n} & setsid sleep {n} & (setsid nohup sh -c 'sleep {n} & sleep {n}' &) ; echo left",
        "exec >/dev/null 2>&1; setsid sleep {n} &",
    ],
)
def test_nothing_that_a_command_starts_outlives_it(yard: Yard, line: str) -> None:
    """Processes in the background, in another session, without a parent, or with closed output do not outlive it."""
    mark = f"{100_000 + os.getpid()}.{len(line)}"
    assert "exit code 0" in yard.use(line.format(n=mark))
    assert alive(mark) == []


def test_a_command_whose_time_is_over_is_ended_with_all_it_started(yard: Yard) -> None:
    """The result has the output until then. A process that ignores signals is killed, and so are its children."""
    mark = f"{200_000 + os.getpid()}"
    found = yard.use(f"trap '' TERM INT HUP; echo begun; setsid sleep {mark} & sleep {mark}", timeout_seconds=3)
    told = re.match(r"its time was over: it and all processes it had started were ended, after (\d+\.\d)", found)
    assert told is not None and float(told[1]) >= 3 and found.endswith("begun\n"), found
    assert alive(mark) == []


def test_a_command_that_nobody_waits_for_is_ended(yard: Yard) -> None:
    """The run is interrupted and cancels the call. The call returns when no process is left."""
    mark = f"{300_000 + os.getpid()}"

    async def give_up() -> None:
        call = asyncio.ensure_future(yard.start(f"setsid sleep {mark} & sleep {mark}"))
        await eventually_async(lambda: len(alive(mark)) >= 2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(give_up())
    assert alive(mark) == []


def test_long_output_keeps_its_beginning_and_its_end(yard: Yard) -> None:
    """The output in memory is limited, and the result counts the missing bytes.

    Shorter output is kept whole for paging.
    """
    found = yard.use("echo first; yes | head -c 6000000; echo last")
    assert found.split("\n", 2)[1] == "first" and found.endswith("y\nlast\n")
    missing = re.search(r"\[cut: (\d+) bytes are missing here", found)
    assert missing is not None and len(found) < KEPT_BYTES and abs(len(found) + int(missing[1]) - 6_000_011) < 200
    whole = yard.use("echo first; yes | head -c 1000000; echo last")
    assert len(whole) > 1_000_000 and "missing here" not in whole
    assert "�" in yard.use("printf '\\377'")


def test_where_nothing_can_be_confined_no_command_runs(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail closed: the result says what is missing."""
    monkeypatch.setattr("wakeful.agents.tools.shell_confinement.probe_abi", lambda: 0)
    assert "this kernel has no Landlock" in yard.use("echo ran > out/ran")
    assert not (yard.root / "out/ran").exists()


# The program of a run: it runs commands inside of the run's confinement, with the tool as the loop has it.
PROGRAM = """
import asyncio, json, os
from wakeful.agents.tools.shell_confinement import narrow
from wakeful.agents.tools.bound_files import Bounds
from wakeful.agents.tools.shell import ShellTool

bounds = Bounds.build(os.getcwd(), ["in.txt"], ["out/"], os.environ["WAKEFUL_SCRATCH"])
(shell,) = ShellTool(os.getcwd(), narrow(bounds, os.environ), os.environ).list_tools()
lines = ["cat in.txt && echo x > out/made && id -u > /dev/null", "cat " + os.environ["WAKEFUL_TOKEN_FILE"], "ls /etc/shadow && cat /etc/shadow", "setsid sleep 54321 & echo left", "cat program.py"]
results = [asyncio.run(shell.carry_out({"line": line}, "1")).text for line in lines]
json.dump([results, open(os.environ["WAKEFUL_TOKEN_FILE"]).read()], open("out/results.json", "w"))
"""


@pytest.mark.parametrize("isolation", ["standard", "strict"])
def test_inside_of_a_confined_run_a_shell_is_narrower_still(tmp_path: Path, isolation: str) -> None:
    """Under a real daemon, in a confined run with a view of its own.

    The command does its work, and cannot read the run's token.
    """
    if isolation == "strict" and (obstacle := find_obstacle()) is not None:
        pytest.skip(f"no strict isolation here: {obstacle}")
    box = Box(tmp_path)
    try:
        box.write("in.txt", "1\n")
        box.write("program.py", PROGRAM)
        places = json.dumps([sys.prefix, sys.base_prefix, str(Path(__file__).parents[2] / "daemon")])
        box.spec(
            "desk",
            f"""
            objective: Use the shell.
            isolation: {isolation}
            bindings: {{input: {{file: in.txt}}, out: {{file: out/, access: write}}}}
            allow: {{read: {places}}}
            run: {{command: [{sys.executable}, program.py]}}
            """,
        )
        box.start()
        row = box.wait_at_rest("desk", runs=1, seconds=40.0)
        assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "desk")
        (worked, token, shadow, left, program), real_token = json.loads(box.read("out/results.json"))
        assert worked.startswith("exit code 0") and "1\n" in worked, worked
        assert "exit code 1" in token and real_token not in token, token
        assert not shadow.startswith("exit code 0") and left.endswith("left\n")
        assert "Permission denied" in program
        assert box.read("out/made") == "x\n"
        assert alive("54321") == []
    finally:
        box.close()
