"""Parses strace's lines about a program: which call asked for which path or address, and the kernel's answer.

`trace` passes lines as they come. A program under trace can write such lines itself, and chooses every path in them.
The parser therefore trusts no line to be complete or valid, and skips a line that it cannot read. It looks at no file.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

Access = Literal["read", "write", "run", "connect"]

# The calls that Landlock, the filter or a private view judge, and those that change where a relative path begins.
# `?`: not every machine has this call.
CALLS = (
    "?open", "openat", "?openat2", "?creat", "execve", "?execveat", "?mkdir", "mkdirat", "?mknod", "mknodat",
    "?rmdir", "?unlink", "unlinkat",
    "?rename", "?renameat", "renameat2", "?link", "linkat", "?symlink", "symlinkat", "truncate", "socket", "connect",
    "bind",
    "chdir", "fchdir", "clone", "?clone3", "?fork", "?vfork",
)  # fmt: skip
# The access of a call, and its paths: for each path, the index of the folder's argument (None: the working folder) and
# the index of the path's argument.
_PATHS: dict[bytes, tuple[Access, tuple[tuple[int | None, int], ...]]] = {
    b"creat": ("write", ((None, 0),)),
    b"execve": ("run", ((None, 0),)),
    b"execveat": ("run", ((0, 1),)),
    b"mkdir": ("write", ((None, 0),)),
    b"mkdirat": ("write", ((0, 1),)),
    b"mknod": ("write", ((None, 0),)),
    b"mknodat": ("write", ((0, 1),)),
    b"rmdir": ("write", ((None, 0),)),
    b"unlink": ("write", ((None, 0),)),
    b"unlinkat": ("write", ((0, 1),)),
    b"rename": ("write", ((None, 0), (None, 1))),
    b"renameat": ("write", ((0, 1), (2, 3))),
    b"renameat2": ("write", ((0, 1), (2, 3))),
    b"link": ("write", ((None, 0), (None, 1))),
    b"linkat": ("write", ((0, 1), (2, 3))),
    b"symlink": ("write", ((None, 1),)),
    b"symlinkat": ("write", ((1, 2),)),
    b"truncate": ("write", ((None, 0),)),
}
# The indices of the folder's, the path's and the flags' argument.
_OPENS: dict[bytes, tuple[int | None, int, int]] = {b"open": (None, 0, 1), b"openat": (0, 1, 2), b"openat2": (0, 1, 2)}
_FORKS = (b"clone", b"clone3", b"fork", b"vfork")
_MAKES = (b"mkdir", b"mkdirat")

_LINE = re.compile(rb"(\d+) +(.*)", re.DOTALL)
_RESUMED = re.compile(rb"<\.\.\. (\w+) resumed>(.*)", re.DOTALL)
_UNFINISHED = b"<unfinished ...>"
_NAME = re.compile(rb"(\w+)\(")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|<[^<>]*>|[^"<(\[{)\]},]+|.', re.DOTALL)
_RESULT = re.compile(rb" *= (-?\d+|\?|0x[0-9a-f]+)(?:<([^<>]*)>)?(?:\(deleted\))?(?: (E[A-Z0-9]+))?")
_STRING = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_FOLDER = re.compile(rb"<([^<>]*)>")
_ESCAPED = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9a-f]{2})|(.))", re.DOTALL)
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"v": b"\v", b"f": b"\f", b"a": b"\a", b"b": b"\b"}
_WRITING = re.compile(rb"\bO_(?:WRONLY|RDWR|CREAT|TRUNC|TMPFILE)\b")
_PORT = re.compile(rb"sin6?_port=htons\((\d+)\)")
_ADDRESS = re.compile(rb'(?:inet_addr\(|inet_pton\(AF_INET6, )"([0-9a-fA-F.:%]+)"')
_UNIX = re.compile(rb'sun_path=(@?)"((?:[^"\\]|\\.)*)"', re.DOTALL)
# The most processes of one program that are followed at a time.
_MOST_PROCESSES = 4096


class Asked(Struct, frozen=True, kw_only=True):
    """A path (absolute, links not followed) or an address that a call asked for.

    - `error`: the kernel's error. None if the call succeeded.
    - `real`: the path that the kernel reports for the opened file.
    - `is_folder`: the call was to make a folder.
    - `is_shared`: the call has two paths, and the error may be about the other one.
    """

    access: Access
    what: str
    error: str | None
    real: str | None = None
    is_folder: bool = False
    is_shared: bool = False


class Reader:
    """Follows one program, and the working folder of each of its processes."""

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd
        self._cwds: dict[bytes, str] = {}
        self._halves: dict[bytes, bytes] = {}
        # The process that is forking now: its child inherits its working folder.
        self._forking: bytes | None = None

    def read(self, line: bytes) -> Iterator[Asked]:
        found = _LINE.match(line)
        if found is None:
            return
        pid, text = found[1], found[2]
        if pid not in self._cwds:
            if len(self._cwds) >= _MOST_PROCESSES:
                self._cwds.clear()
                self._halves.clear()
            self._cwds[pid] = self._cwds.get(self._forking or b"", self._cwd)
        if text.endswith(_UNFINISHED):
            self._halves[pid] = text[: -len(_UNFINISHED)]
            if text.startswith(_FORKS):
                self._forking = pid
            return
        if (resumed := _RESUMED.match(text)) is not None:
            text = self._halves.pop(pid, b"") + resumed[2]
        yield from self._read_call(pid, text)

    def _read_call(self, pid: bytes, text: bytes) -> Iterator[Asked]:
        name = _NAME.match(text)
        if name is None:
            return
        words, end = _split(text, name.end())
        result = _RESULT.match(text, end)
        if result is None or result[1] == b"?":
            return
        error = result[3].decode() if result[3] is not None else None
        call = name[1]
        if call in _OPENS:
            yield from self._read_open(pid, words, *_OPENS[call], error, result[2])
        elif call in _PATHS:
            access, places = _PATHS[call]
            paths = (self._find_path(pid, words, *place) for place in places)
            yield from (
                Asked(access=access, what=path, error=error, is_folder=call in _MAKES, is_shared=len(places) > 1)
                for path in paths
                if path is not None
            )
        elif call in (b"connect", b"bind"):
            yield from _read_address(words, error, is_bound=call == b"bind")
        elif call == b"socket" and words and words[0] != b"AF_UNIX":
            yield Asked(access="connect", what="", error=error)
        elif call == b"chdir" and error is None:
            self._cwds[pid] = self._find_path(pid, words, None, 0) or self._cwd
        elif call == b"fchdir" and error is None and words and (folder := _FOLDER.search(words[0])) is not None:
            self._cwds[pid] = _decode(folder[1])
        elif call in _FORKS and error is None:
            self._forking = None
            # If the child's first line came before this one, the child may have changed its folder: keep its entry.
            self._cwds.setdefault(result[1], self._cwds[pid])

    def _read_open(
        self,
        pid: bytes,
        words: list[bytes],
        folder: int | None,
        place: int,
        flags: int,
        error: str | None,
        real: bytes | None,
    ) -> Iterator[Asked]:
        path = self._find_path(pid, words, folder, place)
        # O_PATH reads and writes nothing, so it is not an access.
        if path is None or len(words) <= flags or b"O_PATH" in words[flags]:
            return
        access: Access = "write" if _WRITING.search(words[flags]) is not None else "read"
        yield Asked(
            access=access,
            what=path,
            error=error,
            real=_decode(real) if real is not None and real.startswith(b"/") else None,
        )

    def _find_path(self, pid: bytes, words: list[bytes], folder: int | None, place: int) -> str | None:
        quoted = _STRING.match(words[place]) if len(words) > place else None
        if quoted is None:
            return None
        base = self._cwds.get(pid, self._cwd)
        if folder is not None and (told := _FOLDER.search(words[folder])) is not None and told[1].startswith(b"/"):
            base = _decode(told[1])
        return posixpath.normpath(posixpath.join(base, _decode(quoted[1])))


def _split(text: bytes, start: int) -> tuple[list[bytes], int]:
    """Split a call's arguments. Returns them, and the offset behind the closing bracket."""
    words, word, depth = [], b"", 1
    at = start
    for token in _TOKEN.finditer(text, start):
        at, piece = token.end(), token[0]
        if piece in (b"(", b"[", b"{"):
            depth += 1
        elif piece in (b")", b"]", b"}"):
            depth -= 1
            if depth == 0:
                break
        if piece == b"," and depth == 1:
            words.append(word.strip())
            word = b""
        else:
            word += piece
    return [*words, word.strip()], at


def _read_address(words: list[bytes], error: str | None, *, is_bound: bool) -> Iterator[Asked]:
    text = words[1] if len(words) > 1 else b""
    if (found := _UNIX.search(text)) is not None:
        name = _decode(found[2])
        # A socket that is a file is judged when it is made, not on connecting. An abstract socket is always judged.
        if found[1]:
            yield Asked(access="connect", what=f"@{name}", error=error)
        elif is_bound and name.startswith("/"):
            yield Asked(access="write", what=posixpath.normpath(name), error=error)
        return
    port, address = _PORT.search(text), _ADDRESS.search(text)
    # Port 0 stands for any port. Nothing can listen on port 0 itself, so such a bind is not reported.
    if port is None or (is_bound and port[1] == b"0"):
        return
    host = address[1].decode() if address is not None else ""
    shown = f"[{host}]" if ":" in host else host
    yield Asked(access="connect", what=f"{'*' if is_bound else shown}:{port[1].decode()}", error=error)


def _decode(text: bytes) -> str:
    """Decode strace's escapes. Bytes that are not UTF-8 become surrogates, as in `os.fsdecode`."""
    return os.fsdecode(_ESCAPED.sub(_unescape, text) if b"\\" in text else text)


def _unescape(found: re.Match[bytes]) -> bytes:
    if found[1] is not None:
        return bytes((int(found[1], 8) & 0xFF,))
    if found[2] is not None:
        return bytes((int(found[2], 16),))
    return _LETTERS.get(found[3], found[3])
