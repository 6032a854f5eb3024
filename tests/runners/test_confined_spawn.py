"""Confinement against the real kernel: the reach of a spawned program, as root and as an unprivileged user."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reserved_port import held_port
from wakeful.runners.isolation.confined_spawn import ConfinedLaunch, Grant, Policy
from wakeful.runners.isolation.kernel_gaps import find_landlock_gaps
from wakeful.runners.isolation.landlock import DEVICE, READ, WRITE, probe_abi
from wakeful.runners.isolation.opened_places import LeadsOutside, make_beneath, open_beneath
from wakeful.runners.isolation.shield import can_shield

NOBODY = 65534
SYSTEM = tuple(Grant(path, READ) for path in ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/proc"))
NULL = Grant("/dev/null", DEVICE)

pytestmark = pytest.mark.skipif(probe_abi() == 0, reason="this kernel has no Landlock: nothing can be confined here")


class Yard:
    """A writable folder, a folder out of reach, and programs started under a policy."""

    def __init__(self, folder: Path) -> None:
        self.inside = folder / "inside"
        self.outside = folder / "outside"
        for path in (self.inside, self.outside):
            path.mkdir()
        (self.outside / "secret").write_text("secret")
        for path in (folder, self.inside, self.outside):
            path.chmod(0o777)

    def policy(self, *grants: Grant, **changes: object) -> Policy:
        return Policy(grants=(*SYSTEM, NULL, Grant(str(self.inside), WRITE), *grants), **changes)

    def run(
        self, text: str, *grants: Grant, is_confined: bool = True, **changes: object
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell script in the writable folder."""

        def spawn() -> subprocess.Popen[str]:
            return subprocess.Popen(
                ["/bin/sh", "-c", text], cwd=self.inside, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

        process = ConfinedLaunch(self.policy(*grants, **changes))(spawn) if is_confined else spawn()
        output, _ = process.communicate(timeout=60)
        return subprocess.CompletedProcess(text, process.returncode, output)

    def clear(self) -> None:
        for made in self.inside.iterdir():
            made.unlink()


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    # pytest's own folders are closed to other users, and some of these tests run as another user.
    for above in (tmp_path, *tmp_path.parents):
        if above == Path("/tmp"):
            break
        above.chmod(0o755)
    yield Yard(tmp_path)


def both_users(test: Callable[[], None]) -> None:
    """Run the test's body as it is, and again in a forked child that gave up root for good."""
    test()
    if os.geteuid() != 0:
        return
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            test()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, (
        "it does not hold for a user without privileges; the traceback is above"
    )


def test_what_is_granted_can_be_read_written_renamed_and_removed(yard: Yard) -> None:
    """Inside its folder a program works as usual."""

    def body() -> None:
        done = yard.run("mkdir d; echo a > d/x; mv d/x y; cat y; ln -s y z; cat z; rm -r d y z; ls | wc -l")
        assert (done.returncode, done.stdout.split()) == (0, ["a", "a", "0"])

    both_users(body)


@pytest.mark.parametrize(
    "attack",
    [
        "cat ../outside/secret",
        "ls ../outside",
        "echo x > ../outside/new",
        "echo x >> ../outside/secret",
        "mv ../outside/secret ./mine",
        "ln ../outside/secret ./mine && cat mine",
        "ln -s ../outside/secret link && cat link",
        "rm ../outside/secret",
        "mkdir ../outside/d",
    ],
)
def test_what_is_not_granted_is_out_of_reach(yard: Yard, attack: str) -> None:
    """No way of naming an outside file reaches it. Without the confinement each of these attacks succeeds."""

    def body() -> None:
        yard.clear()
        done = yard.run(attack)
        assert done.returncode != 0
        assert "denied" in done.stdout or "not permitted" in done.stdout or "cross-device" in done.stdout

    both_users(body)
    assert (yard.outside / "secret").read_text() == "secret"
    assert os.listdir(yard.outside) == ["secret"]
    yard.clear()
    assert yard.run(attack, is_confined=False).returncode == 0


def test_the_rest_of_the_process_stays_free(yard: Yard) -> None:
    """The restriction ends with the one program. This process, and its next child, are as free as before."""
    yard.run("true")
    assert (yard.outside / "secret").read_text() == "secret"
    assert yard.run("cat ../outside/secret", is_confined=False).stdout == "secret"
    assert "NoNewPrivs:\t0" in Path("/proc/self/status").read_text()


def test_a_confined_program_hands_its_confinement_on(yard: Yard) -> None:
    """A new session, a double fork and an exec change nothing."""
    done = yard.run("setsid -w sh -c '(cat ../outside/secret || echo stopped) & wait'")
    assert "stopped" in done.stdout


def test_a_program_cannot_be_started_from_outside(yard: Yard) -> None:
    """Executing a file needs a grant, as reading does."""
    program = yard.outside / "program"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    assert yard.run("../outside/program").returncode == 126
    assert yard.run("../outside/program", is_confined=False).stdout == "ran\n"


CONNECT = "import socket, sys; s = socket.socket(socket.AF_INET, socket.{kind}); s.connect(('127.0.0.1', {port})); s.send(b'out')"


@pytest.fixture
def python() -> str:
    found = "/usr/bin/python3"
    if not os.path.exists(found):
        pytest.skip("needs a python of the system")
    return found


@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
def test_without_network_nothing_gets_out(yard: Yard, python: str, kind: str) -> None:
    """Neither TCP nor UDP works, not even to this machine itself."""
    with socket.socket(socket.AF_INET, getattr(socket, kind)) as server:
        server.bind(("127.0.0.1", 0))
        if kind == "SOCK_STREAM":
            server.listen()
        text = f'{python} -c "{CONNECT.format(kind=kind, port=server.getsockname()[1])}"'

        def body() -> None:
            done = yard.run(text)
            assert done.returncode == 1
            assert "Permission denied" in done.stdout

        both_users(body)
        assert yard.run(text, is_confined=False).returncode == 0
        assert yard.run(text, network=True).returncode == 0


@pytest.mark.skipif(probe_abi() < 4, reason="this kernel does not know ports")
def test_a_listed_port_is_open_and_its_neighbour_is_not(yard: Yard, python: str) -> None:
    """`network: [host:port]` opens that port for TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listed, socket.create_server(("127.0.0.1", 0)) as other:
        ports = (listed.getsockname()[1],)
        assert (
            yard.run(f'{python} -c "{CONNECT.format(kind="SOCK_STREAM", port=ports[0])}"', network=ports).returncode
            == 0
        )
        done = yard.run(
            f'{python} -c "{CONNECT.format(kind="SOCK_STREAM", port=other.getsockname()[1])}"', network=ports
        )
        assert "Permission denied" in done.stdout


@pytest.mark.skipif(probe_abi() < 4, reason="this kernel does not know ports")
def test_nothing_is_listened_on_but_what_is_listed_for_it(yard: Yard, python: str) -> None:
    """A port to connect to belongs to another server. Listening on it is a separate right."""
    with held_port() as held:
        port = held.getsockname()[1]
    listen = f"{python} -c \"import socket; socket.create_server(('127.0.0.1', {port})); print('listens')\""
    assert "Permission denied" in yard.run(listen, network=(port,)).stdout
    assert yard.run(listen, network=(port,), listens=(port,)).stdout == "listens\n"


def test_local_sockets_still_work(yard: Yard, python: str) -> None:
    """Programs that talk to themselves need local sockets, and so does `wakeful note` in a run."""
    text = "import socket; a, b = socket.socketpair(); a.send(b'x'); s = socket.socket(socket.AF_UNIX); s.bind('s'); s.listen()"
    assert yard.run(f'{python} -c "{text}"').returncode == 0


@pytest.mark.skipif(probe_abi() < 6, reason="this kernel cannot scope abstract sockets and signals")
def test_abstract_sockets_and_signals_of_others_are_out_of_reach(yard: Yard, python: str) -> None:
    """Abstract sockets and signals have no file, and are denied all the same."""
    name = f"wakeful-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        text = f"{python} -c \"import socket; socket.socket(socket.AF_UNIX).connect('\\\\0{name}')\""
        done = yard.run(text)
        assert "not permitted" in done.stdout
        assert yard.run(text, is_confined=False).returncode == 0
    assert "not permitted" in yard.run(f"kill -0 {os.getpid()}").stdout
    assert yard.run(f"kill -0 {os.getpid()}", is_confined=False).returncode == 0
    assert yard.run("sleep 60 & kill $!; wait $! || true").returncode == 0


@pytest.mark.parametrize("file", ["environ", "maps", "fd/0", "cwd/x", "root/etc/hostname"])
def test_other_processes_cannot_be_looked_into(yard: Yard, file: str) -> None:
    """The environment and memory of the daemon hold secrets of its user."""
    done = yard.run(f"head -c 10 /proc/{os.getpid()}/{file}")
    assert done.returncode != 0
    assert "denied" in done.stdout or "not permitted" in done.stdout


def test_the_mark_of_a_run_cannot_be_shed(yard: Yard, python: str) -> None:
    """Neither setrlimit nor prlimit on the own process works. Reading limits and setting others does."""
    shed = "import resource as r; r.setrlimit(r.RLIMIT_RTTIME, (r.RLIM_INFINITY, r.RLIM_INFINITY))"
    assert "not allowed" in yard.run(f'{python} -c "{shed}"').stdout
    other = shed.replace("r.setrlimit(", f"r.prlimit({os.getpid()}, ").replace("RTTIME", "CORE")
    assert "not allowed" in (said := yard.run(f'{python} -c "{other}"').stdout) or "PermissionError" in said
    assert yard.run(f'{python} -c "{shed}"', is_confined=False).returncode == 0
    allowed = "import resource as r; r.getrlimit(r.RLIMIT_RTTIME); r.setrlimit(r.RLIMIT_CORE, (0, 0))"
    assert yard.run(f'{python} -c "{allowed}"').returncode == 0


def test_keyrings_and_rings_are_refused(yard: Yard, python: str) -> None:
    """keyctl(GET_KEYRING_ID) finds none of the user's keyrings, and io_uring, which bypasses the filter, is refused."""
    call = "import ctypes; c = ctypes.CDLL(None, use_errno=True); r = c.syscall({}, 0, -3, 0); print(r, ctypes.get_errno())"
    keyctl, ring = (250, 425) if os.uname().machine == "x86_64" else (219, 425)
    assert yard.run(f'{python} -c "{call.format(keyctl)}"').stdout.split() == ["-1", str(errno.EPERM)]
    assert yard.run(f'{python} -c "{call.format(ring)}"').stdout.split() == ["-1", str(errno.ENOSYS)]


def test_root_loses_what_leads_past_a_policy(yard: Yard) -> None:
    """A confined root keeps its rights on files, and no other capability that matters here."""
    if os.geteuid() != 0:
        pytest.skip("only root has capabilities to lose")
    held = int(yard.run("grep CapEff /proc/self/status").stdout.split()[1], 16)
    for number in (19, 21, 38):
        assert not held >> number & 1
    assert held >> 1 & 1
    mounted = yard.run("mount -t tmpfs none .")
    assert mounted.returncode != 0 and "denied" in mounted.stdout, mounted.stdout


@pytest.mark.skipif(not can_shield(), reason="mounting is not allowed here")
def test_a_shielded_place_stays_as_it_is_within_a_folder_that_is_granted(yard: Yard) -> None:
    """Specs and state beside an output cannot be changed, moved or replaced. Scratch inside the state can."""
    state, scratch = yard.inside / "state", yard.inside / "state" / "scratch"
    scratch.mkdir(parents=True)
    (state / "log").write_text("log")
    settings = yard.inside / "wakeful.yaml"
    settings.write_text("concurrency: 1")
    guard = {"shielded": (str(state), str(settings)), "kept_writable": (str(scratch),)}
    for attack in (
        "echo x > state/log",
        "mv state away",
        "rm -r state",
        "echo x > wakeful.yaml",
        "mv report wakeful.yaml",
        "rm wakeful.yaml",
    ):
        assert yard.run(f"echo > report; {attack}", **guard).returncode != 0, attack
    assert (state / "log").read_text() == "log"
    assert settings.read_text() == "concurrency: 1"
    done = yard.run(
        "echo fine > state/scratch/x; mv state/scratch/x state/scratch/y; echo fine > tmp; mv tmp report; cat report state/log",
        **guard,
    )
    assert (done.returncode, done.stdout) == (0, "fine\nlog")
    assert (scratch / "y").read_text() == "fine\n"
    assert str(state) not in Path("/proc/self/mounts").read_text()


def test_a_link_never_leads_out_of_its_folder(tmp_path: Path) -> None:
    """A folder that was replaced by a link to another place is not opened, and nothing is made there."""
    (tmp_path / "secret").mkdir()
    root = tmp_path / "root"
    (root / "real").mkdir(parents=True)
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "near").symlink_to("real")
    os.close(open_beneath(str(root), "near"))
    with pytest.raises(LeadsOutside, match="leads out of"):
        open_beneath(str(root), "out")
    with pytest.raises(LeadsOutside, match="leads out of"):
        make_beneath(str(root), "out/deep/er")
    make_beneath(str(root), "a/b/c")
    assert (root / "a/b/c").is_dir()
    assert os.listdir(tmp_path / "secret") == []


def test_a_policy_that_cannot_be_had_starts_nothing(yard: Yard) -> None:
    """An error on the way is raised to the caller, and no program was started."""
    started = []
    with pytest.raises(OSError):
        ConfinedLaunch(yard.policy(shielded=("/nowhere/at/all",)))(lambda: started.append(1))
    with pytest.raises(ZeroDivisionError):
        ConfinedLaunch(yard.policy())(lambda: 1 // 0)
    assert started == []


def test_gaps_of_older_kernels_are_told() -> None:
    """Each kernel version has more gaps than the next one, and the list names them."""
    assert [len(find_landlock_gaps(abi)) for abi in (1, 3, 4, 5, 6, 7)] == [4, 3, 2, 1, 0, 0]


def test_a_program_of_another_bitness_gets_no_call_through(yard: Yard) -> None:
    """The filter knows only the call numbers of this architecture. Calls by numbers of another one get an error."""
    if os.uname().machine != "x86_64":
        pytest.skip("x86-64 has the second table")
    call = "import ctypes; c = ctypes.CDLL(None, use_errno=True); print(c.syscall(0x40000000 + 39), ctypes.get_errno())"
    assert yard.run(f'{sys.executable if os.geteuid() else "/usr/bin/python3"} -c "{call}"').stdout.split() == [
        "-1",
        str(errno.ENOSYS),
    ]


# Raw calls, since libraries choose among them: the number of x86-64, and that of arm64 if it has the call.
_RAW = {"chmod": (90, None), "fchmodat2": (452, 452), "creat": (85, None), "mknodat": (259, 33)}


def _set_id_ways() -> dict[str, str]:
    machine = 0 if os.uname().machine == "x86_64" else 1
    ways = {
        "chmod": "os.chmod('x', 0o4755)",
        "fchmod": "os.fchmod(os.open('x', os.O_RDONLY), 0o4755)",
        "fchmodat": "os.chmod('x', 0o4755, dir_fd=os.open('.', os.O_RDONLY))",
        "group": "os.chmod('x', 0o2755)",
        "mknod": "os.mknod('n', 0o4755 | stat.S_IFREG)",
        "open": "os.open('n', os.O_CREAT | os.O_WRONLY, 0o4755)",
        "unnamed": "fd = os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755); ctypes.CDLL(None).linkat(-100, b'/proc/self/fd/%d' % fd, -100, b'n', 0x400)",
        "openat2": "call(437, -100, b'n', struct.pack('=3Q', os.O_CREAT | os.O_WRONLY, 0o4755, 0), 24)",
    }
    raw = {
        "chmod": "b'x', 0o4755",
        "fchmodat2": "-100, b'x', 0o4755, 0",
        "creat": "b'n', 0o4755",
        "mknodat": "-100, b'n', 0o104755, 0",
    }
    return ways | {
        f"raw {name}": f"call({_RAW[name][machine]}, {words})"
        for name, words in raw.items()
        if _RAW[name][machine] is not None
    }


@pytest.mark.parametrize("way", _set_id_ways().values(), ids=_set_id_ways().keys())
def test_no_program_is_left_that_takes_on_its_owners_rights(yard: Yard, python: str, way: str) -> None:
    """No call that sets a mode, or makes a file with one, sets a set-id bit.

    Without the confinement each of them does.
    """
    call = "def call(*words):\n    r = ctypes.CDLL(None, use_errno=True).syscall(*words)\n    if r < 0: raise OSError(ctypes.get_errno(), 'refused')"
    (yard.outside / "way.py").write_text(f"import ctypes, os, stat, struct\n{call}\n{way}\n")
    command = f"touch x; {python} {yard.outside}/way.py"

    def find() -> list[str]:
        return [entry.name for entry in yard.inside.iterdir() if entry.stat().st_mode & 0o6000]

    def body() -> None:
        yard.clear()
        done = yard.run(command, Grant(str(yard.outside), READ))
        assert done.returncode == 1 and ("not permitted" in done.stdout or "refused" in done.stdout) and find() == [], (
            done.stdout
        )

    both_users(body)
    yard.clear()
    done = yard.run(command, is_confined=False)
    assert done.returncode == 0 and len(find()) == 1, done.stdout


def test_tools_that_set_modes_work_as_ever(yard: Yard) -> None:
    """The tools are git, tar, cp -p, install and mkdir.

    A folder with the setgid bit still hands it on to new folders.
    """

    def body() -> None:
        text = """set -e
        export HOME=$PWD XDG_CONFIG_HOME=$PWD GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
        git init -q r; cd r; echo a > a; chmod 755 a; git add a; git -c user.name=n -c user.email=e commit -qm m; cd ..
        tar cf t.tar r; mkdir t; tar xpf t.tar -C t; cp -Rp r s; install -m 711 r/a i; mkdir -m 1777 sticky
        git clone -q r c; cat t/r/a s/a i c/a; rm -rf r s t c t.tar i sticky"""
        done = yard.run(text, Grant("/dev/urandom", DEVICE))
        assert (done.returncode, done.stdout.split()) == (0, ["a"] * 4), done.stdout

    both_users(body)
    shared = yard.inside / "shared"
    shared.mkdir()
    shared.chmod(0o2777)
    assert yard.run("mkdir shared/d").returncode == 0 and (shared / "d").stat().st_mode & 0o2000
