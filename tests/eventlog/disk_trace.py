"""The disk after a kill or a power cut at any file operation of a real process, computed from a trace of its calls.

A kill leaves everything that the process wrote. A power cut leaves the flushed part of each file, and of each folder
the names that were flushed with the folder itself. This is the strictest reading of what a file system promises. `-shm`
files are left out, because SQLite makes them anew.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

_CALLS = "mkdir,mkdirat,openat,write,pwrite64,ftruncate,rename,renameat,renameat2,unlink,unlinkat,fsync,fdatasync"
_UNFINISHED = re.compile(r"^(\d+) +(.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"^(\d+) +<\.\.\. \w+ resumed>(.*)$")
_CALL = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)")


class File:
    def __init__(self) -> None:
        self.now = bytearray()
        self.flushed = b""


class Folder:
    def __init__(self) -> None:
        self.now: dict[str, File | Folder] = {}
        self.flushed: dict[str, File | Folder] = {}


class Disk:
    """The contents of `root`, a folder that existed and was empty before the process began."""

    def __init__(self, root: Path) -> None:
        self.said = ""
        self._root = root
        self._top = Folder()
        self._offsets: dict[str, int] = {}

    def image(self, target: Path, *, is_cut: bool) -> None:
        """Write the state of the disk to a folder: after a power cut if `is_cut`, otherwise after a kill."""
        _lay_out(self._top, target, is_cut=is_cut)

    def take(self, call: str, words: str, answer: int) -> bool:
        """Apply one successful call, and return whether it changed the disk."""
        match call:
            case "write" if words.startswith("1<"):
                self.said += _decode(words).decode()
                return False
            case "mkdir" | "mkdirat":
                return self._add(_find_paths(words)[0], Folder())
            case "openat":
                return self._open(words, answer)
            case "write" | "pwrite64" | "ftruncate":
                return self._write(call, words)
            case "rename" | "renameat" | "renameat2":
                old, new = _find_paths(words)[-2:]
                return self._rename(old, new)
            case "unlink" | "unlinkat":
                return self._remove(_find_paths(words)[-1])
            case _:
                return self._flush(words)

    def _open(self, words: str, answer: int) -> bool:
        path = Path(_find_paths(words)[-1])
        self._offsets[str(answer)] = 0
        found = self._find(path)
        if found is None and "O_CREAT" in words:
            return self._add(str(path), File())
        if isinstance(found, File) and "O_TRUNC" in words and found.now:
            found.now.clear()
            return True
        return False

    def _write(self, call: str, words: str) -> bool:
        number, path = _find_descriptor(words)
        file = self._find(Path(path))
        if not isinstance(file, File):
            return False
        if call == "ftruncate":
            size = int(words.rpartition(", ")[2])
            del file.now[size:]
            file.now.extend(bytes(size - len(file.now)))
            return True
        content = _decode(words)
        offset = int(words.rpartition(", ")[2]) if call == "pwrite64" else self._offsets.get(number, 0)
        if call == "write":
            self._offsets[number] = offset + len(content)
        file.now.extend(bytes(max(0, offset - len(file.now))))
        file.now[offset : offset + len(content)] = content
        return True

    def _flush(self, words: str) -> bool:
        found = self._find(Path(_find_descriptor(words)[1]))
        if isinstance(found, File):
            found.flushed = bytes(found.now)
        elif isinstance(found, Folder):
            found.flushed = dict(found.now)
        return found is not None

    def _rename(self, old: str, new: str) -> bool:
        found = self._find(Path(old))
        return found is not None and self._remove(old) and self._add(new, found)

    def _add(self, path: str, entry: File | Folder) -> bool:
        above = self._find(Path(path).parent)
        if isinstance(above, Folder) and not path.endswith("-shm"):
            above.now[Path(path).name] = entry
            return True
        return False

    def _remove(self, path: str) -> bool:
        above = self._find(Path(path).parent)
        return isinstance(above, Folder) and above.now.pop(Path(path).name, None) is not None

    def _find(self, path: Path) -> File | Folder | None:
        if path != self._root and self._root not in path.parents:
            return None
        found: File | Folder | None = self._top
        for name in path.relative_to(self._root).parts:
            found = found.now.get(name) if isinstance(found, Folder) else None
        return found


def trace(command: list[str], record: Path) -> list[tuple[str, str, int]]:
    """Run the command to its end. Return its successful calls in the order in which they ended."""
    words = [
        "strace",
        "-f",
        "-y",
        "-xx",
        "-qq",
        "-s",
        "200000",
        "-e",
        f"trace={_CALLS}",
        "-e",
        "signal=none",
        "-o",
        str(record),
        *command,
    ]
    subprocess.run(words, check=True, capture_output=True, timeout=120)
    return list(_read(record.read_text()))


def _read(text: str) -> Iterator[tuple[str, str, int]]:
    begun: dict[str, str] = {}
    for line in text.splitlines():
        if unfinished := _UNFINISHED.match(line):
            begun[unfinished[1]] = unfinished[2]
            continue
        if resumed := _RESUMED.match(line):
            line = f"{resumed[1]} {begun.pop(resumed[1])}{resumed[2]}"
        call = _CALL.match(line)
        if call is not None and int(call[3]) >= 0:
            yield call[1], call[2], int(call[3])


def _lay_out(folder: Folder, target: Path, *, is_cut: bool) -> None:
    target.mkdir(mode=0o700)
    for name, entry in (folder.flushed if is_cut else folder.now).items():
        if isinstance(entry, Folder):
            _lay_out(entry, target / name, is_cut=is_cut)
        else:
            (target / name).write_bytes(entry.flushed if is_cut else entry.now)


def _find_paths(words: str) -> list[str]:
    return [_unescape(one).decode() for one in re.findall(r'"((?:\\x[0-9a-f]{2})+)"', words)]


def _find_descriptor(words: str) -> tuple[str, str]:
    found = re.match(r"(\d+)<([^>]*)>", words)
    assert found is not None, words
    return found[1], _unescape(found[2]).decode() if found[2].startswith("\\x") else found[2]


def _decode(words: str) -> bytes:
    found = re.search(r'"((?:\\x[0-9a-f]{2})*)"', words)
    assert found is not None, words
    return _unescape(found[1])


def _unescape(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))
