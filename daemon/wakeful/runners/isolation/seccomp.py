"""Builds the system call filter (seccomp) of a confined run. It denies what Landlock cannot deny.

The filter is a hand-written BPF program of a few dozen instructions, for x86-64 and arm64. Each refusal below has a
comment with its reason. `confined_spawn` installs the filter on the short-lived thread that spawns the run
(privileges.py). A refused call fails with an error number and kills no process, so programs can fall back or report it.
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
# BPF instructions: load a word, mask its bits, jump if equal, jump if greater or equal, jump if any bit is set, return.
_LOAD, _AND, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
# x86-64 has a second table of calls at this bit (x32). We know no program that uses it, except to get around filters.
_X32_BIT = 0x40000000
_ALL_BITS = 0xFFFFFFFF

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_SOCK_STREAM, _SOCK_DGRAM = 1, 2
# The type of a socket without SOCK_NONBLOCK and SOCK_CLOEXEC.
_SOCK_TYPE = 0xF
# The bit that datagrams (2) and raw sockets (3) have, and streams (1) and sequenced packets (5) have not.
_DATAGRAM_BIT = 2
_IPPROTO_TCP, _IPPROTO_UDP = 6, 17
_MSG_FASTOPEN = 0x20000000
_TCP_FASTOPEN_CONNECT, _TCP_ULP = 30, 31
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1
_RLIMIT_RTTIME = 15
_SET_ID = stat.S_ISUID | stat.S_ISGID
# O_CREAT and O_TMPFILE. Only with one of them does an open have a mode; otherwise that argument may be garbage.
_MAKES = 0o100 | 0o20000000

# Kernel keyrings belong to the user, not to the process: they hold the credentials of others (Kerberos, disk keys).
_KEYRINGS = ("add_key", "request_key", "keyctl")
# io_uring makes and connects sockets without system calls that a filter could see.
_RINGS = ("io_uring_setup",)
# By call: the index of the argument with the mode. mkdir is not listed: the kernel removes set-ID bits from its mode.
_MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mknod": 1, "mknodat": 2, "creat": 1}
# By call: the index of the argument with the flags. The next argument is the mode.
_OPENS = {"open": 1, "openat": 2}
# Calls whose first argument is a thread; 0 is the caller.
_SCHEDULERS = ("sched_setscheduler", "sched_setparam", "sched_setattr")
# By call: the index of the argument with the flags.
_SENDS = {"sendto": 3, "sendmsg": 2, "sendmmsg": 3}


class _Machine(Struct, frozen=True):
    """An architecture: its number for the audit field, and the numbers of the system calls that it has."""

    audit: int
    calls: dict[str, int]


_MACHINES = {
    "x86_64": _Machine(
        0xC000003E,
        {
            "socket": 41,
            "setrlimit": 160,
            "prlimit64": 302,
            "io_uring_setup": 425,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "sendto": 44,
            "sendmsg": 46,
            "listen": 50,
            "socketpair": 53,
            "setsockopt": 54,
            "sendmmsg": 307,
            "setpriority": 141,
            "sched_setparam": 142,
            "sched_setscheduler": 144,
            "ioprio_set": 251,
            "sched_setattr": 314,
            "open": 2,
            "creat": 85,
            "chmod": 90,
            "fchmod": 91,
            "mknod": 133,
            "openat": 257,
            "mknodat": 259,
            "fchmodat": 268,
            "openat2": 437,
            "fchmodat2": 452,
        },
    ),
    "aarch64": _Machine(
        0xC00000B7,
        {
            "socket": 198,
            "setrlimit": 164,
            "prlimit64": 261,
            "io_uring_setup": 425,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "socketpair": 199,
            "listen": 201,
            "sendto": 206,
            "setsockopt": 208,
            "sendmsg": 211,
            "sendmmsg": 269,
            "ioprio_set": 30,
            "sched_setparam": 118,
            "sched_setscheduler": 119,
            "setpriority": 140,
            "sched_setattr": 274,
            "mknodat": 33,
            "fchmod": 52,
            "fchmodat": 53,
            "openat": 56,
            "openat2": 437,
            "fchmodat2": 452,
        },
    ),
}


class Sockets(Struct, frozen=True):
    """The sockets that a program may have, apart from UNIX sockets. None by default."""

    has_network: bool = False
    # True for a list of ports: only sockets that Landlock judges by port are left, and UDP if `has_udp`.
    is_by_port: bool = False
    has_udp: bool = False
    may_listen: bool = False


class _Test(Struct, frozen=True):
    """A condition of a refusal: the 32 bits at an offset of the call's data equal a value ("is"), differ from it
    ("is not"), or share a bit with it ("has")."""

    offset: int
    how: Literal["is", "is not", "has"]
    value: int
    # The bits that are compared.
    mask: int = _ALL_BITS


class _Refusal(Struct, frozen=True):
    """A call that fails with this error, if all tests hold."""

    call: str
    error: int
    tests: tuple[_Test, ...] = ()


def is_known_machine() -> bool:
    return platform.machine() in _MACHINES


@functools.cache
def build_filter(sockets: Sockets) -> bytes:
    """Build the filter as the kernel takes it: eight bytes per instruction.

    It must be installed last, because opening the places of a policy needs some of the refused calls.
    """
    return _build([*_list_refusals(sockets), *_list_last()])


@functools.cache
def build_socket_filter(sockets: Sockets) -> bytes:
    """Build a stricter filter, for a program inside a run that must reach less than the run itself.

    It refuses UNIX sockets (the control socket, D-Bus, Docker), which Landlock cannot judge, and without a network all
    sockets. Pairs of stream sockets stay allowed, because they connect to nothing outside.
    """
    tests = (_low(0, "is", _AF_UNIX),) if sockets.has_network else ()
    refusals = [_Refusal("socket", errno.EACCES, tests)]
    # One half of a pair of datagram sockets can be connected again, to any path. A raw pair has datagram sockets, too.
    refusals.append(_Refusal("socketpair", errno.EACCES, (_low(1, "has", _DATAGRAM_BIT),)))
    return _build([*refusals, *(_list_port_refusals(sockets) if sockets.is_by_port else ())])


def _build(refusals: Iterable[_Refusal]) -> bytes:
    machine = _MACHINES[platform.machine()]
    # A program of another architecture (32 bits) has other call numbers. The filter cannot judge its calls, so it
    # refuses all of them.
    code = [_instruction(_LOAD, _ARCHITECTURE), _instruction(_JUMP_EQUAL, machine.audit, 1, 0), _refuse(errno.ENOSYS)]
    code += [_instruction(_LOAD, _NUMBER)]
    if machine is _MACHINES["x86_64"]:
        code += [_instruction(_JUMP_AT_LEAST, _X32_BIT, 0, 1), _refuse(errno.ENOSYS)]
    for refusal in refusals:
        if refusal.call in machine.calls:
            code += _compile(refusal, machine)
    code.append(_instruction(_RETURN, _ALLOW))
    return b"".join(code)


def _list_refusals(sockets: Sockets) -> Iterator[_Refusal]:
    if sockets.is_by_port:
        yield from _list_port_refusals(sockets)
    elif not sockets.has_network:
        # Landlock judges only TCP. Without this refusal, UDP, raw sockets, netlink and vsock would be open.
        yield _Refusal("socket", errno.EACCES, (_low(0, "is not", _AF_UNIX),))
    # ENOSYS ("no such call") and not EPERM: event loops then fall back to the calls from before io_uring.
    yield from (_Refusal(call, errno.ENOSYS) for call in _RINGS)
    yield from (_Refusal(call, errno.EPERM) for call in _KEYRINGS)
    # This limit holds the mark by which the daemon recognizes a run's processes (process_mark.py). A process that could
    # change the mark would count as a person at the control socket, and would outlive its run.
    yield _Refusal("setrlimit", errno.EPERM, (_low(0, "is", _RLIMIT_RTTIME),))
    yield from _refuse_given("prlimit64", 2, errno.EPERM, (_low(1, "is", _RLIMIT_RTTIME),))
    # prlimit64 can set limits on any process of the same user, so a run could take files or CPU time from the daemon.
    yield from _refuse_given("prlimit64", 2, errno.EPERM, (_low(0, "is not", 0),))
    # Priorities and the scheduler can be set on other processes as well, and an unprivileged process cannot lower a
    # nice value again. A thread may still set its own. `sched_setaffinity` is allowed: OpenMP calls it with thread
    # numbers, and ends if it is refused. The daemon restores its own affinity (system/process_tuning.py).
    for call, own in (("setpriority", _PRIO_PROCESS), ("ioprio_set", _IOPRIO_WHO_PROCESS)):
        yield _Refusal(call, errno.EPERM, (_low(0, "is not", own),))
        yield _Refusal(call, errno.EPERM, (_low(1, "is not", 0),))
    yield from (_Refusal(call, errno.EPERM, (_low(0, "is not", 0),)) for call in _SCHEDULERS)
    # A set-user-ID or set-group-ID program gives its owner's rights to any user who starts it, also after the run and
    # without its confinement.
    yield from (_Refusal(call, errno.EPERM, (_low(mode, "has", _SET_ID),)) for call, mode in _MODES.items())
    yield from (
        _Refusal(call, errno.EPERM, (_low(flags, "has", _MAKES), _low(flags + 1, "has", _SET_ID)))
        for call, flags in _OPENS.items()
    )


def _list_port_refusals(sockets: Sockets) -> Iterator[_Refusal]:
    """List the refusals for a list of ports.

    Landlock judges the ports of `bind` and `connect` on plain TCP sockets. Every other way to a port is refused here.
    """
    yield _Refusal(
        "socket",
        errno.EACCES,
        tuple(_low(0, "is not", family) for family in (_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK)),
    )
    # Of netlink, only protocol 0 (routes) stays open: getifaddrs and getaddrinfo read this machine's addresses with it.
    yield _Refusal("socket", errno.EACCES, (_low(0, "is", _AF_NETLINK), _low(2, "is not", 0)))
    for family in (_AF_INET, _AF_INET6):
        yield from _list_inet_refusals(family, sockets.has_udp)
    # TCP fast open connects without `connect`. EOPNOTSUPP is the kernel's answer if fast open is off; programs then
    # call `connect`.
    yield from (
        _Refusal(call, errno.EOPNOTSUPP, (_low(flags, "has", _MSG_FASTOPEN),)) for call, flags in _SENDS.items()
    )
    # These options connect later, or turn a TCP socket into one of another family (SMC). Programs work without them if
    # the answer is ENOPROTOOPT ("no such option").
    for option in (_TCP_FASTOPEN_CONNECT, _TCP_ULP):
        yield _Refusal("setsockopt", errno.ENOPROTOOPT, (_low(1, "is", _IPPROTO_TCP), _low(2, "is", option)))
    if not sockets.may_listen:
        # A socket that listens without `bind` gets a port from the kernel, and Landlock does not judge that port.
        yield _Refusal("listen", errno.EACCES)


def _list_inet_refusals(family: int, has_udp: bool) -> Iterator[_Refusal]:
    is_family, is_stream, is_datagram = _low(0, "is", family), _kind("is", _SOCK_STREAM), _kind("is", _SOCK_DGRAM)
    # MPTCP and SCTP. Programs fall back to TCP if the answer is EPROTONOSUPPORT.
    yield _Refusal(
        "socket", errno.EPROTONOSUPPORT, (is_family, is_stream, _low(2, "is not", 0), _low(2, "is not", _IPPROTO_TCP))
    )
    if has_udp:
        # UDP-Lite and ICMP echo.
        yield _Refusal(
            "socket",
            errno.EPROTONOSUPPORT,
            (is_family, is_datagram, _low(2, "is not", 0), _low(2, "is not", _IPPROTO_UDP)),
        )
    else:
        yield _Refusal("socket", errno.EACCES, (is_family, is_datagram))
    # Raw sockets, DCCP, and SCTP with sequenced packets.
    yield _Refusal("socket", errno.EACCES, (is_family, _kind("is not", _SOCK_STREAM), _kind("is not", _SOCK_DGRAM)))


def _list_last() -> Iterator[_Refusal]:
    # The mode of openat2 lies in memory, which a filter cannot read. Programs fall back to openat if the answer is
    # ENOSYS, as on older kernels.
    yield _Refusal("openat2", errno.ENOSYS)


def _refuse_given(call: str, pointer: int, error: int, tests: tuple[_Test, ...]) -> Iterator[_Refusal]:
    """Refuse the call if a pointer argument is not NULL. Each half of the pointer needs a refusal of its own."""
    yield _Refusal(call, error, (*tests, _low(pointer, "is not", 0)))
    yield _Refusal(call, error, (*tests, _high(pointer, "is not", 0)))


def _low(argument: int, how: Literal["is", "is not", "has"], value: int) -> _Test:
    # The low half comes first, because both architectures are little-endian.
    return _Test(_ARGUMENTS + 8 * argument, how, value)


def _kind(how: Literal["is", "is not"], kind: int) -> _Test:
    """Test the type of a socket, without its flags."""
    return _Test(_ARGUMENTS + 8, how, kind, _SOCK_TYPE)


def _high(argument: int, how: Literal["is", "is not", "has"], value: int) -> _Test:
    return _Test(_ARGUMENTS + 8 * argument + 4, how, value)


def _compile(refusal: _Refusal, machine: _Machine) -> list[bytes]:
    """Compile a refusal. The accumulator holds the call's number before and after these instructions."""
    # Built backwards, because jumps go forward: a failed test jumps behind the return. If the tests loaded arguments,
    # the instruction there loads the call's number again.
    body = [_refuse(refusal.error)]
    for test in reversed(refusal.tests):
        jumps = (len(body), 0) if test.how == "is not" else (0, len(body))
        load = [_instruction(_LOAD, test.offset)]
        if test.mask != _ALL_BITS:
            load.append(_instruction(_AND, test.mask))
        body = [*load, _instruction(_JUMP_ANY if test.how == "has" else _JUMP_EQUAL, test.value, *jumps), *body]
    if refusal.tests:
        body.append(_instruction(_LOAD, _NUMBER))
    return [_instruction(_JUMP_EQUAL, machine.calls[refusal.call], 0, len(body)), *body]


def _refuse(error: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | error)


def _instruction(code: int, value: int, jump_true: int = 0, jump_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, jump_true, jump_false, value)
