"""Lists the parts of a run's isolation that this kernel cannot enforce.

Each gap has a short text, its meaning, and the Linux version that closes it. `reach` and `bubblewrap` put the text into
the record of every run; `doctor` shows the same text with its meaning. The kernel's features are probed. Its version is
never read, because distributions backport features, and containers take them away.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Iterator

from wakeful.core.record.observations import Gap
from wakeful.runners.isolation.landlock import SCOPE_ABI, TCP_ABI, probe_abi
from wakeful.runners.isolation.privileges import can_filter
from wakeful.runners.isolation.seccomp import is_known_machine

# From asm-generic/socket.h; Python does not name it.
_SO_PEERPIDFD = 77


@functools.cache
def find_kernel_gaps() -> tuple[Gap, ...]:
    """List all gaps of this kernel. It is probed once per process."""
    return (*find_landlock_gaps(probe_abi()), *_find_filter_gaps(), *_find_caller_gaps())


def find_landlock_gaps(abi: int) -> tuple[Gap, ...]:
    """List the operations that Landlock of this version cannot deny.

    Version 0 (no Landlock) denies nothing, and no isolated run starts.
    """
    gaps = []
    if abi < 3:
        gaps.append(Gap("truncating a file that may be read", "a run can empty what it may only read", "Linux 6.2"))
    if abi < TCP_ABI:
        gaps.append(Gap("TCP by port", "a list under `network` opens every port", "Linux 6.7"))
    if abi < 5:
        gaps.append(Gap("device controls", "a run can send controls to a device that it may open", "Linux 6.10"))
    if abi < SCOPE_ABI:
        gaps.append(
            Gap(
                "abstract sockets and signals to others",
                "a run can end processes of its user, and speak to programs that listen without a file",
                "Linux 6.12",
            )
        )
    return tuple(gaps)


def _find_filter_gaps() -> Iterator[Gap]:
    if not is_known_machine():
        yield Gap(
            "system calls",
            "a run without a network has UDP and other sockets, and reaches keyrings, "
            "limits and priorities of its user",
            "x86-64 or arm64",
        )
    elif not can_filter():
        yield Gap("system calls", "no isolated run starts", "a kernel with CONFIG_SECCOMP_FILTER")


def _find_caller_gaps() -> Iterator[Gap]:
    if not _tells_callers():
        yield Gap(
            "who calls at the control socket",
            "a caller is known by the number of its process, which another process can get later",
            "Linux 6.5",
        )


def _tells_callers() -> bool:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        try:
            found = one.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
        except OSError:
            return False
        socket.close(found)
        return True
