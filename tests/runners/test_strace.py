"""Lines of strace are parsed into the accesses that they report.

The tests use tables and random input.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wakeful.runners.isolation.strace import Asked, Reader

LINES = [
    ('7 openat(AT_FDCWD</p>, "a/b", O_RDONLY|O_CLOEXEC) = -1 EACCES (Permission denied)', ("read", "/p/a/b", "EACCES")),
    ('7 openat(AT_FDCWD, "a/b", O_RDONLY) = 3</q/b>', ("read", "/start/a/b", None)),
    ('7 openat(5</x>, "../b", O_WRONLY|O_CREAT|O_TRUNC, 0666) = -1 EROFS (Read-only file system)', ("write", "/b", "EROFS")),
    ('7 openat2(AT_FDCWD</p>, "a", {flags=O_RDWR, mode=0, resolve=RESOLVE_BENEATH}, 24) = 4</p/a>', ("write", "/p/a", None)),
    ('7 open("/etc/shadow", O_RDONLY) = -1 EACCES (Permission denied)', ("read", "/etc/shadow", "EACCES")),
    ('7 execve("/opt/tool", [""..., ""...], 0x7ffd /* 12 vars */) = -1 EACCES (Permission denied)', ("run", "/opt/tool", "EACCES")),
    ('7 mkdir("x", 0777) = -1 EACCES (Permission denied)', ("write", "/start/x", "EACCES")),
    ('7 unlinkat(AT_FDCWD</p>, "x", 0) = 0', ("write", "/p/x", None)),
    ('7 symlink("/anything", "/p/link") = -1 EPERM (Operation not permitted)', ("write", "/p/link", "EPERM")),
    ('7 openat(AT_FDCWD</p>, "q\\") = 3</x>, \\"", O_RDONLY) = -1 EACCES (Permission denied)', ("read", '/p/q") = 3</x>, "', "EACCES")),
    ('7 openat(AT_FDCWD</p>, "\\303\\274\\n\\33\\377", O_RDONLY) = -1 EACCES (Permission denied)', ("read", "/p/ü\n\x1b\udcff", "EACCES")),
    ('7 socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, IPPROTO_IP) = -1 EACCES (Permission denied)', ("connect", "", "EACCES")),
    ('7 connect(3<socket:[1]>, {sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("1.2.3.4")}, 16) = -1 EINPROGRESS (x)', ("connect", "1.2.3.4:443", "EINPROGRESS")),
    ('7 connect(3<socket:[1]>, {sa_family=AF_INET6, sin6_port=htons(80), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "::1", &sin6_addr), sin6_scope_id=0}, 28) = 0', ("connect", "[::1]:80", None)),
    ('7 connect(3<socket:[1]>, {sa_family=AF_UNIX, sun_path=@"bus"}, 7) = -1 EPERM (x)', ("connect", "@bus", "EPERM")),
    ('7 bind(3<socket:[1]>, {sa_family=AF_INET, sin_port=htons(8080), sin_addr=inet_addr("0.0.0.0")}, 16) = -1 EACCES (x)', ("connect", "*:8080", "EACCES")),
    ('7 bind(3<socket:[1]>, {sa_family=AF_UNIX, sun_path="/run/s"}, 9) = -1 EACCES (x)', ("write", "/run/s", "EACCES")),
]  # fmt: skip
SILENT = [
    "", "7", "openat(", "7 +++ exited with 0 +++", "7 --- SIGCHLD {si_signo=SIGCHLD} ---", '7 openat(AT_FDCWD, "x", O_RDONLY|O_PATH) = 3</x>',
    '7 openat(AT_FDCWD, 0x1, O_RDONLY) = -1 EFAULT (Bad address)', "7 openat() = -1 EACCES (x)", "7 exit_group(0) = ?", '7 connect(3, {sa_family=AF_UNIX, sun_path="/run/bus"}, 9) = 0',
    "7 <... openat resumed>) = 3", '7 socket(AF_UNIX, SOCK_STREAM, 0) = 3<socket:[1]>', '7 openat(AT_FDCWD, "x", O_RDONLY',
]  # fmt: skip


def read(*lines: str) -> list[Asked]:
    reader = Reader("/start")
    return [asked for line in lines for asked in reader.read(line.encode(errors="surrogateescape"))]


@pytest.mark.parametrize(("line", "asked"), LINES, ids=lambda value: value[2:30] if isinstance(value, str) else "")
def test_a_line_says_what_was_asked_for(line: str, asked: tuple[str, str, str | None]) -> None:
    """The parser returns the access, the whole path or address, and the kernel's error."""
    assert [(one.access, one.what, one.error) for one in read(line)] == [asked]


@pytest.mark.parametrize("line", SILENT)
def test_a_line_about_nothing_says_nothing(line: str) -> None:
    """The lines name nothing, are incomplete, or open nothing."""
    assert read(line) == []


def test_a_rename_asks_for_both_of_its_names() -> None:
    """The error may be about either name."""
    line = '7 renameat2(AT_FDCWD</p>, "a", 4</q>, "b", RENAME_NOREPLACE) = -1 EACCES (Permission denied)'
    assert [(one.what, one.is_shared) for one in read(line)] == [("/p/a", True), ("/q/b", True)]


def test_the_kernel_is_believed_where_it_says_what_was_opened() -> None:
    """The kernel follows the links. The name of a file that was deleted meanwhile has a mark that is removed."""
    assert [one.real for one in read('7 openat(AT_FDCWD</p>, "link", O_RDONLY) = 3</real/place>(deleted)')] == [
        "/real/place"
    ]


def test_a_call_that_was_interrupted_by_another_is_put_together() -> None:
    """Two processes interleave, and each half goes to its own call."""
    asked = read(
        '7 openat(AT_FDCWD</p>, "a", O_RDONLY <unfinished ...>', '8 openat(AT_FDCWD</q>, "b", O_RDONLY <unfinished ...>',
        "7 <... openat resumed>) = -1 EACCES (Permission denied)", "8 <... openat resumed>) = -1 EPERM (Operation not permitted)",
    )  # fmt: skip
    assert [(one.what, one.error) for one in asked] == [("/p/a", "EACCES"), ("/q/b", "EPERM")]


def test_relative_paths_begin_where_the_process_stands() -> None:
    """A process changes its folder, and a child begins in its parent's.

    The child's calls may be reported before or after its birth.
    """
    asked = read(
        '7 chdir("sub") = 0', '7 mkdir("a", 0777) = -1 EACCES (x)', "7 clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>", '8 mkdir("b", 0777) = -1 EACCES (x)',
        "7 <... clone resumed>, child_tidptr=0x1) = 8", "8 fchdir(3</else>) = 0", '8 mkdir("c", 0777) = -1 EACCES (x)', '7 mkdir("d", 0777) = -1 EACCES (x)',
        '7 chdir("/nowhere") = -1 ENOENT (x)', '7 vfork() = 9', '9 mkdir("e", 0777) = -1 EACCES (x)',
    )  # fmt: skip
    assert [one.what for one in asked] == ["/start/sub/a", "/start/sub/b", "/else/c", "/start/sub/d", "/start/sub/e"]


@given(
    st.lists(
        st.one_of(
            st.text('0123456789 openat("<>{}[],=-EACS\\x\n/.', max_size=60),
            st.sampled_from([line for line, _ in LINES]),
        ),
        max_size=20,
    ),
    st.integers(0, 200),
)
@example(['7 openat(AT_FDCWD<, "' + "\\" * 50], 10)
def test_no_line_is_too_strange(lines: list[str], cut: int) -> None:
    """A program can write into its own trace. No line raises an error, and every path is absolute."""
    for asked in read(*lines, *(line[:cut] for line, _ in LINES)):
        assert asked.access == "connect" or asked.what.startswith("/")
