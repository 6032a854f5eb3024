"""The only module that runs git: its commands run no code that a repository configures, and write nothing.

`source` asks here for commits, trees and ids. Only rev-parse, rev-list, merge-base and cat-file are run in a
repository. Tests with a canary in each setting show that none of them starts a program. Changed paths are found by
reading tree objects, never by `git diff`. Everything that a repository could make git start (fsmonitor, hooks, filters,
pagers, signature programs, transports of a partial clone) is also disabled by arguments and environment. No index is
read, and no lock is taken.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from wakeful.errors import OperatorError
from wakeful.sources.processes import end_process, start_process
from wakeful.system.git_folders import read_birth

T = TypeVar("T")

ANSWER_SECONDS = 10.0
# The largest object that is read into memory. A tree of 100,000 entries has about 4 MB.
OBJECT_LIMIT_BYTES = 64 * 1024 * 1024
LIST_LIMIT_BYTES = 64 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
_TREES_KEPT = 16
# The number of names sent at once. It is small enough that neither pipe (64 KiB) fills while both sides write.
_NAMES_AT_ONCE = 64
_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# The characters and sequences that git refuses in a ref name (git-check-ref-format), so a name is never an expression.
_NO_REF_NAME = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|^/|/$|\.$|^@$|(?:^|/)\.|\.lock(?:/|$)|^-")
_SETTINGS = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.pager=cat",
    # A name that is both a branch and a tag would print a warning for every question.
    "core.warnAmbiguousRefs=false",
    "gc.auto=0",
    "log.showSignature=false",
    "protocol.allow=never",
    "safe.bareRepository=explicit",
)


class GitRefusal(OperatorError):
    """git failed or refused: not a repository, another owner's repository, a broken one, or no answer."""


class Found(NamedTuple):
    """An object that git knows: its id, its kind (commit, tree, blob, tag), and its size in bytes if git was asked for
    it.
    """

    id: str
    kind: str
    size: int = 0


class TreeEntry(NamedTuple):
    mode: int
    id: str

    @property
    def is_tree(self) -> bool:
        return self.mode & 0o170000 == 0o040000

    @property
    def digest(self) -> str:
        return f"{self.mode:o}:{self.id}"


class Place(NamedTuple):
    """The place of a repository. `prefix` is the path inside it of the folder from which it was found."""

    git_dir: str
    common_dir: str
    prefix: str
    identity: tuple[int, int, int]


def is_object_id(text: str) -> bool:
    """Is this an object id, in either of git's hash formats?"""
    return _OBJECT_ID.fullmatch(text) is not None


def check_ref_name(name: str) -> str:
    """Return the name. Raises GitRefusal for an expression (`main~3`), an option or a newline, which git must never
    get.
    """
    if not name or _NO_REF_NAME.search(name):
        raise GitRefusal(
            f"{name!r} is not the name of a branch; expected one such as main, origin/main or refs/tags/v1"
        )
    return name


def check_path(path: str) -> str:
    """Return the path. Raises GitRefusal unless it is one line of text, relative, and inside the repository."""
    if path.startswith(("-", "/")) or "\n" in path or "\0" in path or ".." in path.split("/"):
        raise GitRefusal(
            f"{path!r} is not a path that can be looked up; expected one inside the repository, such as src/"
        )
    return path


def hardened_environment() -> dict[str, str]:
    """Return the whole environment of every git process. Of ours, only PATH and HOME are inherited."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return kept | {
        "LC_ALL": "C",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_NO_LAZY_FETCH": "1",
        # git before 2.44 ignores the variable above. Reading an object that a partial clone lacks would start the
        # transport that the repository's config names. So no protocol is allowed, and no config can change that.
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }


async def run_git(
    words: Sequence[str], folder: str, *, env: dict[str, str] | None = None, seconds: float | None = None
) -> bytes:
    """Return the output of one command. Raises GitRefusal with git's own message if it fails or takes too long."""
    code, printed, complaint = await answer_git(words, folder, env, seconds)
    if code != 0:
        raise GitRefusal(_say_refusal(complaint, folder))
    return printed


async def ask_git(words: Sequence[str], folder: str) -> bool:
    """Run a command that answers yes by exit code 0 and no by 1."""
    code, _, complaint = await answer_git(words, folder)
    if code not in (0, 1):
        raise GitRefusal(_say_refusal(complaint, folder))
    return code == 0


async def answer_git(
    words: Sequence[str], folder: str, env: dict[str, str] | None = None, seconds: float | None = None
) -> tuple[int, bytes, bytes]:
    """Return exit code, output and error output, for commands whose exit code is an answer."""
    seconds = ANSWER_SECONDS if seconds is None else seconds
    process = await _spawn(words, folder, env)
    try:
        async with asyncio.timeout(seconds):
            printed, complaint = await asyncio.gather(
                _read_bounded(process.stdout, LIST_LIMIT_BYTES), _read_bounded(process.stderr, 4096)
            )
            # If the output is cut at its limit, git is still writing and has no exit code.
            if len(printed) >= LIST_LIMIT_BYTES:
                raise GitRefusal(f"git printed more than {LIST_LIMIT_BYTES} bytes in {folder}")
            return await process.wait(), printed, complaint
    except TimeoutError as error:
        raise GitRefusal(f"git did not answer within {seconds:g} s in {folder}") from error
    finally:
        await end_process(process)


async def locate(folder: str, *, is_explicit: bool = False) -> Place:
    """Find the repository around a folder. git itself checks that its owner may be trusted.

    A bare repository is accepted only if a spec names it, because one inside a checkout can bring in another person's
    config.
    """
    settings = [*await list_trusted_folders()]
    if is_explicit:
        settings.append("safe.bareRepository=all")
    words = [word for setting in settings for word in ("-c", setting)]
    words += ["rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir", "--show-prefix"]
    printed = await run_git(words, folder)
    git_dir, common_dir, prefix = os.fsdecode(printed).split("\n")[:3]
    return Place(git_dir, common_dir, prefix.rstrip("/"), identify(git_dir))


def identify(git_dir: str) -> tuple[int, int, int]:
    """Return the identity of a folder.

    Another folder under the same name is another repository, even with the same inode number.
    """
    try:
        status = os.stat(git_dir)
    except OSError as error:
        raise GitRefusal(f"{git_dir}: {error.strerror}") from error
    return status.st_dev, status.st_ino, read_birth(git_dir)


class Repository:
    """One repository, with two git processes that stay alive while they are used, and a cache of what they read."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._finder = _CatFile(place, "--batch-check")
        self._reader = _CatFile(place, "--batch")
        self._trees: dict[str, dict[bytes, TreeEntry]] = {}
        self._last_range: tuple[tuple[str, str, int], list[str]] | None = None

    async def find(self, names: Sequence[str]) -> list[Found | None]:
        """Find the object of each name (`<commit>:<path>`, `refs/heads/x^{commit}`).

        None for a name without an object.
        """
        return await self._finder.find(names)

    async def read(self, object_id: str) -> bytes:
        """Read the whole content of one object, up to `OBJECT_LIMIT_BYTES`."""
        return b"".join([chunk async for chunk in self.stream(object_id, OBJECT_LIMIT_BYTES)])

    def stream(self, object_id: str, limit: int | None = None) -> AsyncIterator[bytes]:
        """Read the content in chunks. If the caller does not read to the end, the process is ended."""
        return self._reader.stream(object_id, limit)

    async def list_touching(
        self, tip: str, *, path: str, newest: int | None = None, is_whole_graph: bool = False
    ) -> list[str]:
        """List the commits of the first-parent line that touch a path, newest first. With `is_whole_graph`, list all
        reachable commits that touch it.
        """
        words = ["rev-list", "--full-history" if is_whole_graph else "--first-parent", tip]
        return await self._list([*words, *([f"--max-count={newest}"] if newest is not None else [])], path)

    async def list_parents(self, tip: str, *, without: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """List the commits reachable from a tip with their parents, parents first. Commits that git knows to be
        reachable from `without` are left out.
        """
        words = [
            f"--git-dir={self.place.git_dir}",
            "rev-list",
            "--topo-order",
            "--reverse",
            "--parents",
            tip,
            *(f"^{one}" for one in without),
            "--",
        ]
        lines = (await run_git(words, self.place.common_dir)).decode("ascii").splitlines()
        return {commit: tuple(parents) for commit, *parents in map(str.split, lines)}

    async def list_range(self, tip: str, *, without: str, newest: int) -> list[str]:
        """List the newest commits of the first-parent line, without those that git knows to be reachable from
        `without`.

        The last answer is cached, because every target of a branch asks for the same range.
        """
        asked = (tip, without, newest)
        if self._last_range is None or self._last_range[0] != asked:
            words = ["rev-list", "--first-parent", f"--max-count={newest}", tip, f"^{without}"]
            self._last_range = (asked, await self._list(words, ""))
        return self._last_range[1]

    async def is_ancestor(self, older: str, tip: str) -> bool:
        """Is `older` reachable from `tip`?

        Does not use rev-list, whose exclusions are wrong if commit dates run backwards.
        """
        words = [f"--git-dir={self.place.git_dir}", "merge-base", "--is-ancestor", older, tip]
        return await ask_git(words, self.place.common_dir)

    async def read_tree(self, tree_id: str) -> dict[bytes, TreeEntry]:
        """Read a tree's entries, by name.

        The last few trees are cached, because the content of an id never changes, and paths share their parent folders.
        """
        entries = self._trees.get(tree_id)
        if entries is None:
            entries = parse_tree(await self.read(tree_id), len(tree_id) // 2)
            if len(self._trees) >= _TREES_KEPT:
                self._trees.clear()
            self._trees[tree_id] = entries
        return entries

    async def end_idle_reader(self, idle_seconds: float) -> None:
        """Drop the cache and end its process if it was not used for this long. The next read starts another process."""
        if time.monotonic() - self._reader.asked_at > idle_seconds:
            self._trees.clear()
            await self._reader.end()

    async def close(self) -> None:
        """End both processes for good. Later questions are refused."""
        for process in (self._finder, self._reader):
            process.is_closed = True
            await process.end()

    async def _list(self, words: list[str], path: str) -> list[str]:
        words = [f"--git-dir={self.place.git_dir}", *words, "--", *([check_path(path)] if path else [])]
        return (await run_git(words, self.place.common_dir)).decode("ascii").split()


class _CatFile:
    """One `git cat-file` process. It answers one question at a time, is started on demand, and is restarted after an
    error.
    """

    def __init__(self, place: Place, mode: str) -> None:
        self._place = place
        self._mode = mode
        self.asked_at = time.monotonic()
        self.is_closed = False
        self._process: asyncio.subprocess.Process | None = None
        # One question at a time, because answers have no number, only their order.
        self._turn = asyncio.Lock()

    async def find(self, names: Sequence[str]) -> list[Found | None]:
        for name in names:
            if "\n" in name or "\0" in name or name.startswith("-"):
                raise GitRefusal(f"{name!r} is not a valid object name: it begins with '-' or has a line break")
        async with self._turn:
            found: list[Found | None] = []
            for begin in range(0, len(names), _NAMES_AT_ONCE):
                found += await self._converse(self._find_some(names[begin : begin + _NAMES_AT_ONCE]))
            return found

    async def stream(self, object_id: str, limit: int | None) -> AsyncIterator[bytes]:
        if not is_object_id(object_id):
            raise GitRefusal(f"{object_id!r} is not an object id")
        async with self._turn:
            is_complete = False
            try:
                left = await self._converse(self._begin_reading(object_id, limit))
                while left:
                    chunk = await self._converse(self._read_some(min(left, _CHUNK_BYTES)))
                    left -= len(chunk)
                    yield chunk
                await self._converse(self._read_some(1))
                is_complete = True
            finally:
                # If the caller stopped early, the rest of the answer would be read as the answer to the next question.
                if not is_complete:
                    await self._end_process()

    async def end(self) -> None:
        async with self._turn:
            await self._end_process()

    async def _converse(self, exchange: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await exchange
        except TimeoutError as error:
            await self._end_process()
            raise GitRefusal(f"git did not answer within {ANSWER_SECONDS:g} s in {self._place.git_dir}") from error
        except (ConnectionError, asyncio.IncompleteReadError, ValueError) as error:
            complaint = await self._read_complaint()
            await self._end_process()
            raise GitRefusal(_say_refusal(complaint, self._place.git_dir)) from error
        except BaseException:
            await self._end_process()
            raise

    async def _find_some(self, names: Sequence[str]) -> list[Found | None]:
        questions, answers = _pipes(await self._started())
        questions.write("".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape"))
        await questions.drain()
        found: list[Found | None] = []
        for _ in names:
            line = await answers.readuntil(b"\n")
            words = line.decode("utf-8", "surrogateescape").split()
            is_known = len(words) == 3 and is_object_id(words[0])
            found.append(Found(words[0], words[1], int(words[2])) if is_known else None)
        return found

    async def _begin_reading(self, object_id: str, limit: int | None) -> int:
        questions, answers = _pipes(await self._started())
        questions.write(f"{object_id}\n".encode())
        await questions.drain()
        words = (await answers.readuntil(b"\n")).split()
        if len(words) != 3:
            raise GitRefusal(f"object {object_id} is not in {self._place.git_dir}")
        size = int(words[2])
        if limit is not None and size > limit:
            raise GitRefusal(f"object {object_id} has {size} bytes; at most {limit} are read")
        return size

    async def _read_some(self, size: int) -> bytes:
        _, answers = _pipes(await self._started())
        return await answers.readexactly(size)

    async def _started(self) -> asyncio.subprocess.Process:
        self.asked_at = time.monotonic()
        if self.is_closed:
            raise GitRefusal(f"{self._place.git_dir} is no longer watched")
        if self._process is None:
            words = [f"--git-dir={self._place.git_dir}", "cat-file", self._mode]
            self._process = await _spawn(words, self._place.common_dir)
        return self._process

    async def _read_complaint(self) -> bytes:
        if self._process is None:
            return b""
        try:
            async with asyncio.timeout(1.0):
                assert self._process.stderr is not None
                return await self._process.stderr.read(4096)
        except TimeoutError:
            return b""

    async def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await end_process(process)


def parse_tree(content: bytes, id_bytes: int) -> dict[bytes, TreeEntry]:
    """Parse a tree object into its entries by name: `<mode> <name>\\0<id>`, with the id in the repository's own length.

    git checks that an object matches its id, but not that a tree is valid. A tree made by hand may be invalid.
    """
    entries: dict[bytes, TreeEntry] = {}
    position = 0
    while position < len(content):
        space = content.find(b" ", position)
        end = content.find(b"\0", space)
        following = end + 1 + id_bytes
        mode = content[position:space]
        if space < 0 or end < 0 or following > len(content) or not re.fullmatch(rb"[0-7]{1,7}", mode):
            raise GitRefusal(f"a tree is broken at byte {position}")
        name = content[space + 1 : end]
        if name in entries:
            raise GitRefusal(f"a tree holds the name {name!r} twice")
        entries[name] = TreeEntry(int(mode, 8), content[end + 1 : following].hex())
        position = following
    return entries


async def list_trusted_folders() -> Iterable[str]:
    """List the person's own `safe.directory` settings, as arguments for other commands.

    The person's config files are hidden from every other command, because they may contain includes, aliases and
    programs. The exceptions for folders of other owners must still hold, and git accepts them on the command line. They
    are read each time a repository is located, so that an exception made after a refusal is noticed without a restart.
    """
    own = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "XDG_CONFIG_HOME")}
    own |= {
        name: os.environ[name]
        for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
        if name in os.environ
    }
    values = []
    for scope in ("--system", "--global"):
        try:
            printed = await run_git(["config", scope, "--includes", "-z", "--get-all", "safe.directory"], "/", env=own)
        except GitRefusal:
            # git exits with 1 if the file or the key does not exist, which is the usual case.
            continue
        values += printed.decode("utf-8", "surrogateescape").split("\0")[:-1]
    return [f"safe.directory={value}" for value in values]


async def _spawn(words: Sequence[str], folder: str, env: dict[str, str] | None = None) -> asyncio.subprocess.Process:
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    argv = ["git", "--no-pager", *settings, *words]
    try:
        return await start_process(argv, folder, hardened_environment() if env is None else env, has_stdin=True)
    except FileNotFoundError as error:
        if os.path.isdir(folder):
            raise GitRefusal("git is not installed, or not in PATH: commits cannot be looked at") from error
        raise GitRefusal(f"{folder} is not there") from error
    except OSError as error:
        raise GitRefusal(f"git could not be started in {folder}: {error.strerror}") from error


def _pipes(process: asyncio.subprocess.Process) -> tuple[asyncio.StreamWriter, asyncio.StreamReader]:
    """Return the pipes to write to and to read from. `_spawn` opens all three."""
    assert process.stdin is not None and process.stdout is not None
    return process.stdin, process.stdout


async def _read_bounded(stream: asyncio.StreamReader | None, limit: int) -> bytes:
    assert stream is not None
    chunks, size = [], 0
    while size < limit and (chunk := await stream.read(min(_CHUNK_BYTES, limit - size))):
        chunks.append(chunk)
        size += len(chunk)
    return b"".join(chunks)


def _say_refusal(complaint: bytes, folder: str) -> str:
    text = complaint.decode("utf-8", "replace").strip()
    lines = [line.removeprefix("fatal: ").removeprefix("error: ") for line in text.splitlines() if line.strip()]
    if any("dubious ownership" in line for line in lines):
        return (
            f"git refuses {folder}: it belongs to another user. If you trust it: "
            f"git config --global --add safe.directory {folder}"
        )
    if any("not a git repository" in line for line in lines):
        return f"{folder} is not inside a git repository"
    return f"git in {folder}: {lines[0] if lines else 'ended without a message'}"
