"""Messages that programs print about a denial: one recorded message for each program, and the path or address it
names.
"""

from __future__ import annotations

import pytest

from wakeful.runners.isolation.denials import Complaint, find_complaints, speaks_of_denial


def reads(what: str, **named: bool) -> Complaint:
    return Complaint(access=None, what=what, **named)


def writes(what: str, **named: bool) -> Complaint:
    return Complaint(access="write", what=what, **named)


def connects(what: str = "", **named: bool) -> Complaint:
    return Complaint(access="connect", what=what, **named)


# Printed by real programs under isolation: standard, without a network or with a list of ports.
MESSAGES = {
    "cat": ("cat: ../beside: Permission denied", [reads("../beside")]),
    "ls": ("ls: cannot open directory '..': Permission denied", [reads("..")]),
    "cp": ("cp: cannot create regular file '../new': Permission denied", [writes("../new")]),
    "mkdir": ("mkdir: cannot create directory ‘../made’: Permission denied", [writes("../made")]),
    "mkdir in a view": ("mkdir: cannot create directory '/etc/x': Read-only file system", [writes("/etc/x")]),
    "rm": ("rm: cannot remove '../beside': Permission denied", [writes("../beside")]),
    "sh": ("/state/runs/28/script: 1: cannot create ../new: Permission denied", [writes("../new")]),
    "bash": ("bash: line 1: ../new: Permission denied", [reads("../new")]),
    "bash, a program": ("bash: ./tool: Permission denied", [reads("./tool")]),
    "tar": ("tar: ../x.tar: Cannot open: Permission denied", [reads("../x.tar")]),
    "sed": (
        "sed: couldn't open temporary file ./sedhBDcz1: Permission denied",
        [writes("./sedhBDcz1", is_temporary=True)],
    ),
    "make": ("make: Makefile: Permission denied", [reads("Makefile", is_word=True)]),
    "chmod": ("chmod: changing permissions of '../beside': Operation not permitted", [reads("../beside")]),
    "python": ("PermissionError: [Errno 13] Permission denied: '../beside'", [reads("../beside")]),
    "python, a script": (
        "python: can't open file '/opt/tools/srv.py': [Errno 13] Permission denied",
        [reads("/opt/tools/srv.py")],
    ),
    "python, two names": (
        "PermissionError: [Errno 13] Permission denied: 'a.tmp' -> '/opt/b'",
        [reads("a.tmp"), reads("/opt/b")],
    ),
    "python, multiprocessing": (
        "    sl = self._semlock = _multiprocessing.SemLock(\nPermissionError: [Errno 13] Permission denied",
        [writes("/dev/shm/lock")],
    ),
    "python, urllib": (
        "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
        [connects()],
    ),
    "python, socket": (
        '  File "/usr/lib/python3.11/socket.py", line 836, in create_connection\n    sock.connect(sa)\nPermissionError: [Errno 13] Permission denied',
        [connects()],
    ),
    "requests": (
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='api.example.com', port=8443): Max retries exceeded with url: /v1",
        [connects("api.example.com:8443")],
    ),
    "pip": (
        "WARNING: The directory '/home/me/.cache/pip' or its parent directory is not owned or is not writable by the current user. The cache has been disabled.\n"
        "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f>: Failed to establish"
        " a new connection: [Errno -2] Name or service not known')': /simple/nosuch/",
        [writes("/home/me/.cache/pip"), connects()],
    ),
    "node": (
        "Error: EACCES: permission denied, open '../beside'\n  errno: -13,\n  code: 'EACCES',",
        [reads("../beside")],
    ),
    "node, made": ("Error: EPERM: operation not permitted, mkdir '/opt/x'", [writes("/opt/x")]),
    "node, connected": ("Error: connect EACCES 127.0.0.1:81 - Local (undefined:undefined)", [connects("127.0.0.1:81")]),
    "node, fetch": (
        "  [cause]: Error: getaddrinfo EAI_AGAIN example.com",
        [connects("example.com:443", is_absent=True)],
    ),
    "npm": (
        "npm error network request to https://registry.example.org/x failed, reason: getaddrinfo ENOTFOUND registry.example.org",
        [connects("registry.example.org:443", is_absent=True)],
    ),
    "npm, cache": (
        "npm error code EACCES\nnpm error syscall mkdir\nnpm error path /home/me/.npm\nnpm error Error: EACCES: permission denied, mkdir '/home/me/.npm'",
        [writes("/home/me/.npm")],
    ),
    "java": ('Exception in thread "main" java.nio.file.AccessDeniedException: ../beside', [reads("../beside")]),
    "java.io": (
        'Exception in thread "main" java.io.FileNotFoundException: ../beside (Permission denied)',
        [reads("../beside")],
    ),
    "java, connected": ('Exception in thread "main" java.net.SocketException: Permission denied', [connects()]),
    "java, name": (
        'Exception in thread "main" java.net.UnknownHostException: example.com',
        [connects("example.com:443", is_absent=True)],
    ),
    "go": ("2024/01/02 10:11:12 open /opt/data/x: permission denied", [reads("/opt/data/x")]),
    "go, made": ("mkdir /opt/data: permission denied", [writes("/opt/data")]),
    "go, name": (
        'Get "https://example.com/": dial tcp: lookup example.com: Temporary failure in name resolution',
        [connects("example.com:443", is_absent=True)],
    ),
    "go, connected": ("dial tcp 10.0.0.5:5432: connect: permission denied", [connects("10.0.0.5:5432")]),
    "go, socket": ("dial unix /var/run/docker.sock: connect: permission denied", [writes("/var/run/docker.sock")]),
    "docker": (
        "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get version",
        [writes("/var/run/docker.sock")],
    ),
    "ruby": (
        "app.rb:1:in `initialize': Permission denied @ rb_sysopen - ../beside (Errno::EACCES)",
        [reads("../beside")],
    ),
    "ruby, connected": (
        "Failed to open TCP connection to example.com:443 (getaddrinfo: Temporary failure in name resolution)",
        [connects("example.com:443")],
    ),
    "perl": ("cannot open ../beside: Permission denied at -e line 1.", [reads("../beside")]),
    "perl, connected": ("IO::Socket::INET: connect: Permission denied at -e line 1.", [connects()]),
    "rust": ('Error: Os { code: 13, kind: PermissionDenied, message: "Permission denied" }', []),
    "rust, with its path": ("Error: failed to open `../beside`: Permission denied (os error 13)", [reads("../beside")]),
    "cargo": (
        "warning: spurious network error (3 tries remaining): [6] Could not resolve hostname (Could not resolve host: index.crates.io)\n"
        "  failed to download from `https://index.crates.io/config.json`",
        [connects("index.crates.io:443", is_absent=True)],
    ),
    "cargo, cache": (
        "error: failed to create directory `/home/me/.cargo/registry/cache`\n\nCaused by:\n  Permission denied (os error 13)",
        [writes("/home/me/.cargo/registry/cache")],
    ),
    "curl": ("curl: (6) Could not resolve host: example.com", [connects("example.com:443", is_absent=True)]),
    "curl, address": (
        "curl: (7) Failed to connect to 127.0.0.1 port 81 after 0 ms: Couldn't connect to server",
        [connects("127.0.0.1:81")],
    ),
    "wget": (
        "Resolving example.com (example.com)... failed: Temporary failure in name resolution.\nwget: unable to resolve host address ‘example.com’",
        [connects("example.com:443", is_absent=True)],
    ),
    "git over https": (
        "fatal: unable to access 'http://git.example.com:8080/a/b/': Could not resolve host: git.example.com",
        [connects("git.example.com:8080", is_absent=True)],
    ),
    "git over ssh": (
        "ssh: Could not resolve hostname github.com: Temporary failure in name resolution\nfatal: Could not read from remote repository.",
        [connects("github.com:22", is_absent=True)],
    ),
    "ssh": ("ssh: connect to host example.com port 2222: Permission denied", [connects("example.com:2222")]),
    "ssh, no key": ("me@example.com: Permission denied (publickey).", []),
    "psql": (
        'psql: error: connection to server at "127.0.0.1", port 5432 failed: could not create socket: Permission denied',
        [connects("127.0.0.1:5432")],
    ),
    "redis": ("Could not connect to Redis at 127.0.0.1:6379: Permission denied", [connects("127.0.0.1:6379")]),
    "sqlite3": (
        'Error: unable to open database "../db.sqlite": unable to open database file',
        [writes("../db.sqlite")],
    ),
    "sqlite in python": ("sqlite3.OperationalError: attempt to write a readonly database", [writes("data/app.db")]),
    "sqlite in python, not opened": ("sqlite3.OperationalError: unable to open database file", [writes("data/app.db")]),
}
COMMAND = "python3 app.py --database=data/app.db"


@pytest.mark.parametrize(("printed", "complaints"), MESSAGES.values(), ids=MESSAGES)
def test_a_message_is_read_as_what_it_is_about(printed: str, complaints: list[Complaint]) -> None:
    assert find_complaints(f"some lines before\n{printed}\n", COMMAND) == complaints


def test_what_a_message_leaves_out_is_taken_from_the_command() -> None:
    """The command supplies the port if only the host was printed, and the address if none was."""
    assert find_complaints("curl: (6) Could not resolve host: example.com", "curl http://example.com/x") == [
        connects("example.com:80", is_absent=True)
    ]
    printed = "urlopen error [Errno -3] Temporary failure in name resolution"
    assert find_complaints(printed, "fetch https://example.com:8443/ git@github.com:a/b") == [
        connects("example.com:8443", is_absent=True),
        connects("github.com:22", is_absent=True),
    ]


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "FAILED tests/test_a.py::test_b - assert 1 == 2",
        "TypeError: x is not a function",
        "error: expected ';' at end",
        "Segmentation fault (core dumped)",
    ],
)
def test_other_failures_are_no_complaints(printed: str) -> None:
    assert find_complaints(printed, COMMAND) == [] and not speaks_of_denial(printed)


def test_what_is_read_is_bounded() -> None:
    """Reading any output takes no more than a moment."""
    flood = "\n".join(f"cat: /x/{number}: Permission denied" for number in range(100_000))
    assert len(find_complaints(flood)) == 50
    assert find_complaints("'" * 200_000 + ": Permission denied") == []
