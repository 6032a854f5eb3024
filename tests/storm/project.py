"""A project for one storm: its sessions, files, links, mounts and repositories, and everything that may happen to them.

One random generator makes every choice, so that a seed is a whole history except for the machine's timing. Each action
is one thing that people and programs do to files while wakeful watches. Nothing here asks the daemon anything.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import random
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
NAMES = ("a", "b", "c", "d")
WORK = ("digest_program.py", "commit_ledger_program.py")
# Names for actions whose own names do not say enough.
KINDS = {
    "write_slowly": "slow writer", "swap_link": "link and target swapped", "relink_hard": "hard link made", "toggle_mount": "bind mount on or off",
    "commit_side": "commit in a linked worktree", "commit_module": "commit in a submodule", "pull_shallow": "fetch into a shallow clone", "rename": "file renamed",
    "rename_project_away": "specs renamed away and back", "make_executable": "chmod", "poison": "input that fails", "burst": "burst of thirty files", "move_folder": "folder moved",
}  # fmt: skip
_MS_BIND, _MNT_DETACH = 1 << 12, 2
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Declared:
    """A session of the storm: what it reads, by the patterns of `digest_program.py`, and where its result is.

    `needs` is a mount that it needs.
    """

    name: str
    reads: tuple[str, ...]
    output: str
    needs: str | None = None
    tree: tuple[str, str] | None = None
    # The key `line` of a session that takes every commit.
    ledger: str | None = None


class Project:
    def __init__(self, folder: Path, rng: random.Random, *, can_mount: bool, can_be_strict: bool) -> None:
        self.folder, self.rng = folder, rng
        self.can_mount, self.can_be_strict = can_mount, can_be_strict
        self.specs = folder / "sessions.d"
        self.data = folder / "data"
        self.repository = folder / "repo"
        self.sessions: dict[str, Declared] = {}
        self.mounted = False
        # How often each kind of event happened, without events that could not be done.
        self.counts: Counter[str] = Counter()
        self._is_undone = False
        self._writers: list[threading.Thread] = []
        self._count = 0
        self._make()

    # -- at the beginning ---------------------------------------------------------------------

    def _make(self) -> None:
        for name in ("data/sub", "out", "share", "behind", "sessions.d"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for name in WORK:
            shutil.copy(HERE / name, self.folder / name)
        for name in NAMES:
            (self.data / f"{name}.txt").write_text(f"first {name}\n")
        (self.data / "sub" / "deep.txt").write_text("deep\n")
        (self.data / "link.txt").symlink_to("a.txt")
        os.link(self.data / "b.txt", self.data / "sub" / "hard.txt")
        (self.folder / "behind" / "one.txt").write_text("behind the mount\n")
        self._make_repositories()
        if self.can_mount:
            self.mount()
        for declare in (self._declare_files, self._declare_repositories, self._declare_others):
            declare()

    def _make_repositories(self) -> None:
        library, main = self.folder / "library", self.repository
        for folder in (library, main):
            folder.mkdir()
            self.git(folder, "init", "--quiet", "--initial-branch=main")
            self._write_source(folder, "first")
            self.git(folder, "add", ".")
            self.git(folder, "commit", "--quiet", "-m", "first")
        self.git(main, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "vendor")
        self.git(main, "commit", "--quiet", "-m", "a submodule")
        self.git(main, "worktree", "add", "--quiet", "-b", "side", str(self.folder / "side"))
        subprocess.run(
            ["git", "clone", "--quiet", "--depth=1", f"file://{main}", str(self.folder / "shallow")],
            check=True,
            capture_output=True,
        )

    def _declare_files(self) -> None:
        level = self.rng.choice(("standard", "strict")) if self.can_be_strict else "standard"
        self.declare("flat", ("data/*.txt",), seconds=0, level=level)
        self.declare("deep", ("data/**/*.txt",), seconds=self.rng.choice((0, 0.3)), settle="20ms")
        self.declare("named", ("data/a.txt", "data/link.txt"), seconds=0)
        self.declare("slow", ("data/b.txt", "data/sub/*.txt"), seconds=self.rng.choice((0.2, 0.6)))
        self.declare("chain", ("out/flat.txt", "out/named.txt"), seconds=0)
        if self.can_mount:
            self.declare("shared", ("share/*.txt",), seconds=0, needs="share")

    def _declare_repositories(self) -> None:
        for name, repository in (
            ("tree", "repo"),
            ("side-tree", "side"),
            ("module", "repo/vendor"),
            ("shallow-tree", "shallow"),
        ):
            if name == "tree" or self.rng.random() < 0.5:
                self._spec(
                    name,
                    f"bindings:\n  code: {{commits: src, repo: {repository}}}\n",
                    ["--tree", str(self.folder / repository), "src"],
                )
                self.sessions[name] = Declared(name, (), f"out/{name}.txt", tree=(repository, "src"))
        self.base = self.head()
        for name, line in (("every", "first-parent"), ("every-one", "all")):
            binding = f"{{commits: src, repo: repo, branch: main, each_commit: true, line: {line}}}"
            text = f"objective: Take every commit.\nbindings:\n  code: {binding}\n  result: {{file: out/{name}.txt, access: write}}\n"
            (self.specs / f"{name}.yaml").write_text(
                text + f"run: {{command: [python3, commit_ledger_program.py, out/{name}.txt], retries: 5}}\n"
            )
            self.sessions[name] = Declared(name, (), f"out/{name}.txt", ledger=line)

    def _declare_others(self) -> None:
        (self.specs / "mailbox.yaml").write_text("objective: Take messages.\nrun: {command: ['true']}\n")

    def declare(
        self,
        name: str,
        reads: tuple[str, ...],
        *,
        seconds: float,
        level: str = "standard",
        settle: str = "50ms",
        needs: str | None = None,
    ) -> None:
        bindings = "".join(
            f'  in{number}: {{file: "{pattern}", settle: {settle}}}\n' for number, pattern in enumerate(reads)
        )
        self._spec(name, f"isolation: {level}\nbindings:\n{bindings}", list(reads), seconds)
        self.sessions[name] = Declared(name, reads, f"out/{name}.txt", needs)

    def _spec(self, name: str, head: str, arguments: list[str], seconds: float = 0) -> None:
        words = ", ".join(
            f'"{word}"' for word in ("python3", "digest_program.py", f"out/{name}.txt", str(seconds), *arguments)
        )
        text = f"objective: Keep a digest.\n{head}  result: {{file: out/{name}.txt, access: write}}\nrun: {{command: [{words}], retries: 1, timeout: 60s}}\n"
        (self.specs / f"{name}.yaml").write_text(text)

    # -- what may happen ----------------------------------------------------------------------

    def list_actions(self) -> list[tuple[int, Callable[[], str]]]:
        """Return the actions with their weights. Each action returns a text that says what it did."""
        actions = [
            (8, self.write), (6, self.save), (3, self.touch), (3, self.write_slowly), (3, self.remove), (2, self.swap_link), (1, self.link_to_itself),
            (2, self.relink_hard), (2, self.rename), (2, self.move_folder), (1, self.make_executable), (2, self.burst), (2, self.poison),
            (6, self.commit), (2, self.merge), (1, self.collect_garbage), (1, self.rename_project_away),
        ]  # fmt: skip
        # Actions that only a certain session notices.
        watched = {
            "shared": (3, self.toggle_mount),
            "side-tree": (3, self.commit_side),
            "module": (3, self.commit_module),
            "shallow-tree": (3, self.pull_shallow),
        }
        return [*actions, *(action for name, action in watched.items() if name in self.sessions)]

    def act(self) -> str:
        weights, actions = zip(*self.list_actions(), strict=True)
        action = self.rng.choices(actions, weights)[0]
        self._is_undone = False
        words = action()
        if not self._is_undone:
            self.counts[KINDS.get(action.__name__, action.__name__.replace("_", " "))] += 1
        return words

    def text(self) -> str:
        self._count += 1
        return f"{self._count} {'x' * self.rng.choice((1, 10, 5000))}\n"

    def pick(self) -> Path:
        places = [self.data / f"{name}.txt" for name in NAMES] + [
            self.data / "sub" / "deep.txt",
            self.data / "sub" / "hard.txt",
            self.data / "new.txt",
        ]
        return self.rng.choice([*places, self.folder / "share" / "one.txt"] if self.mounted else places)

    def write(self) -> str:
        path = self.pick()
        return self._try(f"write {path.name}", lambda: path.write_text(self.text()))

    def save(self) -> str:
        path = self.pick()
        fresh = path.with_name(f".{path.name}.new~")

        def do() -> None:
            fresh.write_text(self.text())
            fresh.rename(path)

        return self._try(f"save {path.name}", do)

    def touch(self) -> str:
        path = self.pick()
        return self._try(f"touch {path.name}", lambda: os.utime(path))

    def write_slowly(self) -> str:
        path, pieces = self.pick(), self.rng.randrange(3, 9)
        texts = [self.text() for _ in range(pieces)]

        def do() -> None:
            with contextlib.suppress(OSError), path.open("w", buffering=1) as file:
                for text in texts:
                    file.write(text)
                    time.sleep(0.15)

        writer = threading.Thread(target=do)
        writer.start()
        self._writers.append(writer)
        return f"write {path.name} slowly, {pieces} pieces"

    def remove(self) -> str:
        path = self.pick()
        return self._try(f"remove {path.name}", path.unlink)

    def swap_link(self) -> str:
        """Make one of the two a file and the other a link to it, at random."""
        link, target = self.data / "link.txt", self.data / "a.txt"

        def do() -> None:
            text = self.text()
            for path in (link, target):
                path.unlink(missing_ok=True)
            if self.rng.random() < 0.5:
                link.write_text(text)
                target.symlink_to("link.txt")
            else:
                target.write_text(text)
                link.symlink_to("a.txt")

        return self._try("swap the link and its target", do)

    def link_to_itself(self) -> str:
        link = self.data / "link.txt"

        def do() -> None:
            link.unlink(missing_ok=True)
            link.symlink_to("link.txt")

        return self._try("link to itself", do)

    def relink_hard(self) -> str:
        hard, source = self.data / "sub" / "hard.txt", self.data / "b.txt"

        def do() -> None:
            hard.unlink(missing_ok=True)
            os.link(source, hard)

        return self._try("hard link anew", do)

    def rename(self) -> str:
        path = self.pick()
        return self._try(f"rename {path.name}", lambda: path.rename(path.with_name("moved.txt")))

    def move_folder(self) -> str:
        sub, away = self.data / "sub", self.data / "away"

        def do() -> None:
            (sub.rename(away) if sub.exists() else away.rename(sub))

        return self._try("move a folder", do)

    def make_executable(self) -> str:
        path = self.pick()
        return self._try(f"chmod {path.name}", lambda: path.chmod(self.rng.choice((0o644, 0o755))))

    def burst(self) -> str:
        def do() -> None:
            for number in range(30):
                (self.data / f"burst-{number % 7}.txt").write_text(self.text())

        return self._try("burst", do)

    def wake_slow(self) -> str:
        path = self.data / "b.txt"
        return self._try("write b.txt", lambda: path.write_text(self.text()))

    def poison(self) -> str:
        path = self.data / "c.txt"
        return self._try("poison c.txt", lambda: path.write_text("poison\n"))

    def toggle_mount(self) -> str:
        self.unmount() if self.mounted else self.mount()
        return "mount" if self.mounted else "unmount"

    def mount(self) -> None:
        share, behind = (os.fsencode(self.folder / name) for name in ("share", "behind"))
        if _libc.mount(behind, share, None, ctypes.c_ulong(_MS_BIND), None) != 0:
            raise OSError(ctypes.get_errno(), "mount")
        self.mounted = True

    def unmount(self) -> None:
        if _libc.umount2(os.fsencode(self.folder / "share"), _MNT_DETACH) != 0:
            raise OSError(ctypes.get_errno(), "umount")
        self.mounted = False

    def rename_project_away(self) -> str:
        """Rename the folder of the specs for a moment, as `git stash` and some sync programs do."""
        away = self.folder / "sessions.away"

        def do() -> None:
            self.specs.rename(away)
            time.sleep(0.3)
            away.rename(self.specs)

        return self._try("rename the specs away and back", do)

    # -- git ----------------------------------------------------------------------------------

    def git(self, folder: Path, *words: str) -> str:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OSError(f"git {words}: {done.stderr}")
        return done.stdout.strip()

    def list_commits(self, line: str) -> list[str]:
        """List the commits since the beginning that change src/, oldest first.

        The trees are compared one by one, because the oracle does not trust git's own walks.
        """
        wanted, ahead = [], [self.git(self.repository, "rev-parse", "main")]
        parents = {}
        while ahead:
            commit = ahead.pop()
            if commit in parents:
                continue
            parents[commit] = self.find_parents(commit)
            ahead += parents[commit][:1] if line == "first-parent" else parents[commit]
        before = set(self.git(self.repository, "rev-list", self.base).split())
        for commit in self.git(self.repository, "rev-list", "--topo-order", "--reverse", "main").split():
            if commit in parents and commit not in before:
                compared = parents[commit][:1] if line == "first-parent" else parents[commit]
                if all(self.find_tree(commit) != self.find_tree(one) for one in compared):
                    wanted.append(commit)
        return wanted

    @functools.cache  # noqa: B019 (a commit never changes, and the project lives as long as its process)
    def find_parents(self, commit: str) -> list[str]:
        return self.git(self.repository, "log", "-1", "--format=%P", commit).split()

    @functools.cache  # noqa: B019
    def find_tree(self, commit: str) -> str:
        try:
            return self.git(self.repository, "rev-parse", f"{commit}:src")
        except OSError:
            return "none"

    def head(self, folder: Path | None = None) -> str:
        return self.git(folder or self.repository, "rev-parse", "HEAD")

    def _write_source(self, folder: Path, text: str) -> None:
        for name in ("src", "docs"):
            (folder / name).mkdir(exist_ok=True)
            (folder / name / "file.txt").write_text(text)

    def commit(self) -> str:
        place = self.rng.choice(("src", "src", "docs"))

        def do() -> None:
            (self.repository / place / f"{self.rng.choice(NAMES)}.txt").write_text(self.text())
            self.git(self.repository, "add", place)
            self.git(self.repository, "commit", "--quiet", "-m", f"change {place}")

        return self._try(f"commit to {place}", do)

    def merge(self) -> str:
        """Make a branch with a commit of its own, and merge it with a merge commit."""

        def do() -> None:
            repository = self.repository
            self._count += 1
            branch = f"topic-{self._count}"
            self.git(repository, "checkout", "--quiet", "-b", branch)
            (repository / "src" / f"{branch}.txt").write_text(self.text())
            self.git(repository, "add", "src")
            self.git(repository, "commit", "--quiet", "-m", branch)
            self.git(repository, "checkout", "--quiet", "main")
            (repository / "docs" / f"{branch}.txt").write_text(self.text())
            self.git(repository, "add", "docs")
            self.git(repository, "commit", "--quiet", "-m", "meanwhile")
            self.git(repository, "merge", "--quiet", "--no-ff", "-m", f"merge {branch}", branch)

        return self._try("merge a branch", do)

    def commit_side(self) -> str:
        return self._commit_elsewhere("side", "commit in the linked worktree")

    def commit_module(self) -> str:
        return self._commit_elsewhere("repo/vendor", "commit in the submodule")

    def pull_shallow(self) -> str:
        """Fetch the newest commit alone. It has no history in common with the one before."""
        shallow = self.folder / "shallow"

        def do() -> None:
            self.git(shallow, "fetch", "--quiet", "--depth=1", "origin", "main")
            self.git(shallow, "reset", "--quiet", "--hard", "FETCH_HEAD")

        return self._try("fetch into the shallow clone", do)

    def _commit_elsewhere(self, place: str, words: str) -> str:
        folder = self.folder / place

        def do() -> None:
            (folder / "src" / "file.txt").write_text(self.text())
            self.git(folder, "add", "src")
            self.git(folder, "commit", "--quiet", "-m", words)

        return self._try(words, do)

    def collect_garbage(self) -> str:
        return self._try("git gc", lambda: self.git(self.repository, "gc", "--quiet", "--prune=now"))

    # -- at the end ---------------------------------------------------------------------------

    def calm_down(self) -> None:
        """End the writers and the failures on purpose, and put everything where it belongs."""
        for writer in self._writers:
            writer.join()
        self._writers.clear()
        if (self.data / "away").exists() and not (self.data / "sub").exists():
            (self.data / "away").rename(self.data / "sub")
        if self.can_mount and not self.mounted:
            self.mount()
        if "poison" in _read(self.data / "c.txt") or "poison" in _read(self.data / "moved.txt"):
            for name in ("c.txt", "moved.txt"):
                (self.data / name).write_text(self.text())

    def close(self) -> None:
        for writer in self._writers:
            writer.join()
        if self.mounted:
            self.unmount()

    def _try(self, words: str, do: Callable[[], object]) -> str:
        """Do an action that may fail. For example, a missing file cannot be renamed: people meet that, too."""
        try:
            do()
        except OSError as error:
            self._is_undone = True
            return f"{words}: {error}"
        return words


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
