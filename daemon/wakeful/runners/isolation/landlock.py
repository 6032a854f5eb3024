"""Wraps the system calls of Landlock, which limits the files, TCP ports, abstract sockets and processes that a confined
process can reach.

`confined_spawn` makes a ruleset for a run and restricts the short-lived thread that spawns the run. Every process that
this thread starts inherits the restriction for ever. `Ruleset` uses only what the kernel's Landlock version (ABI)
offers; `kernel_gaps` lists the missing parts. This module knows nothing of runs, and restricts no thread by itself.
"""

from __future__ import annotations

import ctypes
import functools
import os
import stat
import struct
import weakref
from collections.abc import Iterable

from wakeful.runners.isolation.privileges import restrict_by

# System call numbers, the same on every architecture.
_CREATE_RULESET, _ADD_RULE = 444, 445
_ASK_VERSION = 1
_PATH_BENEATH, _NET_PORT = 1, 2

# Rights on files. These three lines have the rights of ABI 1. Later kernels added the rights below.
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE = 1 << 4, 1 << 5
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << bit for bit in range(6, 13))
# Moving a file into another folder (ABI 2), truncating one (ABI 3), device controls (ABI 5).
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_ALL_OF_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
# The rights that can be granted on a file that is not a folder. The kernel refuses any other right.
_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV

# The rights that runs are granted. A run never makes device files.
READ = EXECUTE | READ_FILE | READ_DIR
WRITE = (
    READ
    | WRITE_FILE
    | TRUNCATE
    | REFER
    | REMOVE_DIR
    | REMOVE_FILE
    | MAKE_DIR
    | MAKE_REG
    | MAKE_SOCK
    | MAKE_FIFO
    | MAKE_SYM
)
DEVICE = READ_FILE | WRITE_FILE | IOCTL_DEV

_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
TCP_ABI = 4
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1 << 0, 1 << 1
SCOPE_ABI = 6

_libc = ctypes.CDLL(None, use_errno=True)


@functools.cache
def probe_abi() -> int:
    """Return the version of the kernel's Landlock. 0 if the kernel has none, or it is switched off."""
    version: int = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)
    return max(0, version)


class Ruleset:
    """An allow list: the kernel denies everything else that it can deny. The caller closes it after use, by `with`.

    `has_tcp`: the ruleset does not restrict TCP. Otherwise a process can connect to, and listen on, granted ports only.
    `is_reading_only`: the ruleset judges only the reading of files and folders. Several rulesets narrow each other.
    `has_files`: if False, the ruleset does not restrict files, so that the restricted thread may still mount.
    A ruleset can be made only if `probe_abi` does not return 0.
    """

    def __init__(self, *, has_tcp: bool = False, is_reading_only: bool = False, has_files: bool = True) -> None:
        abi = probe_abi()
        self._handled = READ_FILE | READ_DIR if is_reading_only else _ALL_OF_ABI[min(abi, 5)] * has_files
        self._has_ports = abi >= TCP_ABI and not has_tcp and not is_reading_only
        scope = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if abi >= SCOPE_ABI and not is_reading_only else 0
        size = 8 if abi < TCP_ABI else 16 if abi < SCOPE_ABI else 24
        attributes = struct.pack("=3Q", self._handled, (_BIND_TCP | _CONNECT_TCP) * self._has_ports, scope)
        self._fd = _check(_libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0))

    def __enter__(self) -> Ruleset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._fd)

    def close_when_unheld(self) -> None:
        """Close the ruleset when the last reference to it is gone. For a ruleset with several holders."""
        weakref.finalize(self, os.close, self._fd).atexit = False

    def allow(self, fd: int, rights: int) -> None:
        """Grant rights on an opened path (O_PATH is enough) and everything below it.

        The rights belong to the file, not to its name: they stay if it is renamed.
        """
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _FILE_RIGHTS
        self.allow_known(fd, rights)

    def allow_known(self, fd: int, rights: int) -> None:
        """Grant rights as `allow` does, without a check. The caller knows that they suit a file or a folder."""
        rule = struct.pack("=Qi", rights & self._handled, fd)
        _check(_libc.syscall(_ADD_RULE, self._fd, _PATH_BENEATH, rule, 0))

    def allow_connect(self, ports: Iterable[int]) -> None:
        self._allow_ports(_CONNECT_TCP, ports)

    def allow_listen(self, ports: Iterable[int]) -> None:
        self._allow_ports(_BIND_TCP, ports)

    def _allow_ports(self, right: int, ports: Iterable[int]) -> None:
        for port in ports if self._has_ports else ():
            rule = struct.pack("=2Q", right, port)
            _check(_libc.syscall(_ADD_RULE, self._fd, _NET_PORT, rule, 0))

    def restrict_self(self) -> None:
        """Restrict the calling thread, and all that it starts from now on. Cannot be undone."""
        restrict_by(self._fd)

    @property
    def fd(self) -> int:
        """The ruleset's descriptor, for a process that restricts itself by it. `close` also closes the descriptor."""
        return self._fd


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
