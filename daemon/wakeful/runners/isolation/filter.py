"""The system call filter of a confined run (seccomp): what Landlock does not know how to deny.

A hand-written BPF program of a few dozen instructions, for x86-64 and arm64; each refusal below says why it is there. `confine`
puts it on the short-lived thread that spawns the run (privileges.py). Refused calls fail with an error number and kill nobody, so that programs
can fall back and say what happened to them.
"""

from __future__ import annotations

import errno
import functools
import platform
import stat
import struct
from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
# seccomp_data: the call's number, the architecture, the instruction, six arguments of 64 bits.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
# Loads a word, jumps if equal, jumps if greater or equal, jumps if any of these bits is set, returns.
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
# x86-64 has a second table of calls at this bit; nothing we know uses it but to go round filters.
_X32_BIT = 0x40000000

_AF_UNIX = 1
_RLIMIT_RTTIME = 15
_SET_ID = stat.S_ISUID | stat.S_ISGID
# O_CREAT and O_TMPFILE: only then has an open a mode, and else maybe garbage in its place.
_MAKES = 0o100 | 0o20000000

# Kernel keyrings belong to the user, not to the process: they hold the credentials of others (Kerberos, disk keys).
_KEYRINGS = ("add_key", "request_key", "keyctl")
# Asks for sockets, and connects them, past every filter of system calls.
_RINGS = ("io_uring_setup",)
# Which argument of a call is a mode. A new folder's is not asked: the kernel takes these bits out of it.
_MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mknod": 1, "mknodat": 2, "creat": 1}
_OPENS = {"open": 1, "openat": 2}


class _Machine(Struct, frozen=True):
    """How one architecture names itself and its calls, as far as it has them."""

    audit: int
    calls: dict[str, int]


_MACHINES = {
    "x86_64": _Machine(
        0xC000003E,
        {
            "socket": 41, "setrlimit": 160, "prlimit64": 302, "io_uring_setup": 425, "add_key": 248, "request_key": 249, "keyctl": 250,
            "open": 2, "creat": 85, "chmod": 90, "fchmod": 91, "mknod": 133, "openat": 257, "mknodat": 259, "fchmodat": 268, "openat2": 437, "fchmodat2": 452,
        },  # fmt: skip
    ),
    "aarch64": _Machine(
        0xC00000B7,
        {
            "socket": 198, "setrlimit": 164, "prlimit64": 261, "io_uring_setup": 425, "add_key": 217, "request_key": 218, "keyctl": 219,
            "mknodat": 33, "fchmod": 52, "fchmodat": 53, "openat": 56, "openat2": 437, "fchmodat2": 452,
        },  # fmt: skip
    ),
}


class _Test(Struct, frozen=True):
    """The 32 bits at an offset of the call's data are, are not, or have any bit of a value; where they do not, the refusal does not apply."""

    offset: int
    how: Literal["is", "is not", "has"]
    value: int


class _Refusal(Struct, frozen=True):
    """A call that fails with this error, if all tests hold."""

    call: str
    error: int
    tests: tuple[_Test, ...] = ()


def is_known_machine() -> bool:
    return platform.machine() in _MACHINES


@functools.cache
def build_filter(*, has_network: bool, is_last: bool = True) -> bytes:
    """The program, as the kernel takes it: eight bytes an instruction. Unless it `is_last`, `build_last_filter` follows."""
    return _build([*_list_refusals(has_network), *(_list_last() if is_last else ())])


@functools.cache
def build_last_filter() -> bytes:
    """What whoever opens the places of a policy needs himself until then."""
    return _build(_list_last())


@functools.cache
def build_socket_filter(*, has_network: bool) -> bytes:
    """For a program that shall be further from everybody than the run it belongs to: no sockets that are files (the control socket, D-Bus,
    Docker), which Landlock cannot judge, and without a network none at all. Pairs of sockets lead nowhere, and stay."""
    tests = (_low(0, "is", _AF_UNIX),) if has_network else ()
    return _build([_Refusal("socket", errno.EACCES, tests)])


def _build(refusals: Iterable[_Refusal]) -> bytes:
    machine = _MACHINES[platform.machine()]
    # A program of another architecture (32 bits) has other numbers: none of its calls can be judged, so none is answered.
    code = [_instruction(_LOAD, _ARCHITECTURE), _instruction(_JUMP_EQUAL, machine.audit, 1, 0), _refuse(errno.ENOSYS)]
    code += [_instruction(_LOAD, _NUMBER)]
    if machine is _MACHINES["x86_64"]:
        code += [_instruction(_JUMP_AT_LEAST, _X32_BIT, 0, 1), _refuse(errno.ENOSYS)]
    for refusal in refusals:
        if refusal.call in machine.calls:
            code += _compile(refusal, machine)
    code.append(_instruction(_RETURN, _ALLOW))
    return b"".join(code)


def _list_refusals(has_network: bool) -> Iterator[_Refusal]:
    if not has_network:
        # Landlock knows TCP alone: without this, UDP, raw sockets, netlink and vsock lead out.
        yield _Refusal("socket", errno.EACCES, (_low(0, "is not", _AF_UNIX),))
    # "No such call" and not "refused": event loops then fall back to what they used before there were rings.
    yield from (_Refusal(call, errno.ENOSYS) for call in _RINGS)
    yield from (_Refusal(call, errno.EPERM) for call in _KEYRINGS)
    # The mark by which a run's processes are known stands in this limit (mark.py): whoever could change it would pass for a person
    # at the control socket, and outlive its run.
    yield _Refusal("setrlimit", errno.EPERM, (_low(0, "is", _RLIMIT_RTTIME),))
    yield from _refuse_given("prlimit64", 2, errno.EPERM, (_low(1, "is", _RLIMIT_RTTIME),))
    # A limit can be set on any process of the same user: the daemon's own files or time could be taken away.
    yield from _refuse_given("prlimit64", 2, errno.EPERM, (_low(0, "is not", 0),))
    # A program that takes on its owner's rights, or his group's, outlives the run and its confinement: whoever starts it later has them.
    yield from (_Refusal(call, errno.EPERM, (_low(mode, "has", _SET_ID),)) for call, mode in _MODES.items())
    yield from (_Refusal(call, errno.EPERM, (_low(flags, "has", _MAKES), _low(flags + 1, "has", _SET_ID))) for call, flags in _OPENS.items())


def _list_last() -> Iterator[_Refusal]:
    # Its mode lies in memory, where no filter looks. "No such call": who uses it falls back to openat, as on older kernels.
    yield _Refusal("openat2", errno.ENOSYS)


def _refuse_given(call: str, pointer: int, error: int, tests: tuple[_Test, ...]) -> Iterator[_Refusal]:
    """Refuse where an argument is not NULL, whichever half of the pointer says so."""
    yield _Refusal(call, error, (*tests, _low(pointer, "is not", 0)))
    yield _Refusal(call, error, (*tests, _high(pointer, "is not", 0)))


def _low(argument: int, how: Literal["is", "is not", "has"], value: int) -> _Test:
    # Both architectures are little-endian.
    return _Test(_ARGUMENTS + 8 * argument, how, value)


def _high(argument: int, how: Literal["is", "is not", "has"], value: int) -> _Test:
    return _Test(_ARGUMENTS + 8 * argument + 4, how, value)


def _compile(refusal: _Refusal, machine: _Machine) -> list[bytes]:
    """The accumulator holds the call's number before and after."""
    tests = refusal.tests
    # A mismatch jumps behind the return; where arguments were loaded, to the instruction that loads the number again.
    body: list[bytes] = []
    for place, test in enumerate(tests):
        left = 2 * (len(tests) - place - 1) + 1
        jumps = (left, 0) if test.how == "is not" else (0, left)
        body += [_instruction(_LOAD, test.offset), _instruction(_JUMP_ANY if test.how == "has" else _JUMP_EQUAL, test.value, *jumps)]
    body.append(_refuse(refusal.error))
    if tests:
        body.append(_instruction(_LOAD, _NUMBER))
    return [_instruction(_JUMP_EQUAL, machine.calls[refusal.call], 0, len(body)), *body]


def _refuse(error: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | error)


def _instruction(code: int, value: int, jump_true: int = 0, jump_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, jump_true, jump_false, value)
