"""The canary repository: in every place from which git can start a program, it has a program that leaves a trace.

The tests bind the repository in every way and ask every question about it, and no program may run. Afterwards plain git
is run on the same repository, and starts each of them. This proves that the programs were in place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from e2e.box import Box
from git_repository import git
from wait_conditions import eventually

# Run by `make test-long`, because each test starts a daemon, which takes long.
pytestmark = pytest.mark.long

HOOKS = ("post-index-change", "post-checkout", "reference-transaction", "pre-auto-gc")
FILES = """
    root: {root}
    objective: Sum up.
    bindings:
      data: {{file: "data/*.txt", settle: 10ms}}
      out:  {{file: "out/**", access: write}}
    run: {{command: [sh, -c, 'mkdir -p out; cat data/*.txt > out/sum.txt'], retries: 0}}
"""
TREE = """
    root: {root}
    objective: Sum up in a worktree.
    allow: {{write: []}}
    bindings:
      data: {{file: "data/*.txt", settle: 10ms}}
      code: {{commits: src/, branch: main, settle: 10ms}}
      out:  {{file: "out-of-tree/**", access: write}}
    run: {{script: 'cat data/*.txt src/* > out-of-tree/sum.txt; cat .gitattributes', retries: 0, workspace: worktree}}
"""
COMMITS = """
    root: {root}
    objective: Read what was committed.
    bindings:
      code: {{commits: "{path}", settle: 10ms, {more}}}
    run: {{command: [sh, -c, 'ls "$WAKEFUL_BINDING_CODE" "$WAKEFUL_CAUSES"'], retries: 0}}
"""


class Sink(NamedTuple):
    """A way to make plain git start a program: the folder, the arguments and the environment."""

    folder: str
    words: tuple[str, ...]
    environ: dict[str, str] = {}
    # The text of this file is first changed to another of the same length, so that git has to read it.
    touched: str | None = None
    removed: str | None = None


class Canaries:
    """Programs that record their own name when they are started."""

    def __init__(self, folder: Path) -> None:
        self._programs, self._sang = folder / "canaries", folder / "sang"
        self._programs.mkdir()
        self._sang.mkdir()

    def make(self, name: str, ending: int = 1) -> str:
        program = self._programs / name
        program.write_text(f"#!/bin/sh\necho \"$*\" >> '{self._sang}/{name}'\nexit {ending}\n")
        program.chmod(0o755)
        return str(program)

    def heard(self) -> set[str]:
        return set(os.listdir(self._sang))

    def forget(self) -> None:
        for name in self.heard():
            (self._sang / name).unlink()

    def trace(self, name: str) -> str:
        return str(self._sang / name)


def configure(config: Path, settings: dict[str, str]) -> None:
    with config.open("a") as file:
        for name, value in settings.items():
            section, _, key = name.rpartition(".")
            head, _, sub = section.partition(".")
            quoted = f' "{sub}"' if sub else ""
            file.write(f'[{head}{quoted}]\n\t{key} = "{value}"\n')


class Project:
    """A repository with two commits, in which every sink is then armed."""

    def __init__(self, folder: Path, canaries: Canaries) -> None:
        self.folder, self.canaries = folder, canaries
        self.root = folder / "project"
        self._commit_all()
        self._plant()
        self._plant_around()

    def _commit_all(self) -> None:
        files = {"src/a.py": "a = 1\n", "data/a.txt": "one\n", "data/b.proc": "two\n", "both.txt": "base\n"}
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        (self.root / ".gitattributes").write_text(
            "*.py diff=evil\n*.txt filter=evil\n*.proc filter=proc\nboth.txt merge=evil\n"
        )
        git(self.root, "init", "-q", "-b", "main")
        lib = self.folder / "lib"
        lib.mkdir()
        git(lib, "init", "-q", "-b", "main")
        (lib / "l.txt").write_text("lib\n")
        git(lib, "add", "-A")
        git(lib, "commit", "-qm", "lib")
        git(self.root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(lib), "sub")
        git(self.root, "add", "-A")
        git(self.root, "commit", "-qm", "first")
        git(self.root, "checkout", "-q", "-b", "theirs")
        (self.root / "both.txt").write_text("theirs\n")
        git(self.root, "commit", "-qam", "theirs")
        git(self.root, "checkout", "-q", "main")
        (self.root / "both.txt").write_text("ours\n")
        git(self.root, "commit", "-qam", "ours")
        git(self.root, "worktree", "add", "-q", "-b", "beside", str(self.folder / "tree"))
        signed = git(self.root, "cat-file", "commit", "HEAD").replace(
            "\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n x\n -----END PGP SIGNATURE-----\n\n", 1
        )
        git(
            self.root,
            "update-ref",
            "refs/heads/main",
            git(self.root, "hash-object", "-t", "commit", "-w", "--stdin", text=signed + "\n"),
        )
        git(self.root, "checkout", "-q", "-b", "next")
        (self.root / "src/a.py").write_text("a = 2\n")
        git(self.root, "commit", "-qam", "second")
        self.next = git(self.root, "rev-parse", "HEAD")
        git(self.root, "checkout", "-q", "main")

    def _plant(self) -> None:
        make, dot = self.canaries.make, self.root / ".git"
        hooks = dot / "hooks"
        shutil.rmtree(hooks, ignore_errors=True)
        hooks.mkdir()
        for hook in HOOKS:
            (hooks / hook).symlink_to(make(f"hook-{hook}", 0))
        (dot / "included").write_text(f"[alias]\n\tincluded = !{make('include')}\n")
        configure(
            dot / "config",
            {
                "core.fsmonitor": make("fsmonitor"),
                "core.hooksPath": str(hooks),
                "core.sshCommand": make("ssh"),
                "alias.evil": f"!{make('alias')}",
                "alias.rev-parse": f"!{make('alias-of-builtin')}",
                "alias.cat-file": f"!{make('alias-of-builtin')}",
                "include.path": str(dot / "included"),
                "filter.evil.clean": make("clean"),
                "filter.evil.smudge": make("smudge"),
                "filter.proc.process": make("process"),
                "diff.external": make("external"),
                "diff.evil.textconv": make("textconv"),
                "merge.evil.driver": f"{make('driver')} %O %A %B",
                "gpg.program": make("gpg"),
                "log.showSignature": "true",
                "protocol.allow": "always",
                "protocol.ext.allow": "always",
                "remote.ssh.url": "ssh://127.0.0.1/x",
                "remote.ext.url": f"ext::{make('transport')} %S",
                "remote.origin.promisor": "true",
                "remote.origin.url": f"ext::{make('promisor')} %S",
                "extensions.partialClone": "origin",
                "extensions.worktreeConfig": "true",
            },
        )

    def _plant_around(self) -> None:
        """Arm the repositories around the main one.

        They are the submodule, the worktree with its own config, a bare repository inside, and one that the environment
        names.
        """
        make, dot = self.canaries.make, self.root / ".git"
        configure(dot / "modules/sub/config", {"core.fsmonitor": make("submodule")})
        (dot / "worktrees/tree/config.worktree").write_text("")
        configure(dot / "worktrees/tree/config.worktree", {"core.fsmonitor": make("worktree")})
        nested = self.root / "nested/evil"
        nested.parent.mkdir()
        git(self.root.parent, "clone", "-q", "--bare", str(self.folder / "lib"), str(nested))
        (nested / "work").mkdir()
        configure(nested / "config", {"core.bare": "false", "core.worktree": "work", "core.fsmonitor": make("nested")})
        aside = self.folder / "aside"
        git(self.folder, "clone", "-q", str(self.folder / "lib"), str(aside))
        configure(aside / ".git/config", {"core.fsmonitor": make("environment")})

    def move_on(self) -> None:
        """Move the branch to the second commit without git, which would start the canaries."""
        (self.root / ".git/refs/heads/main").write_text(f"{self.next}\n")

    def sinks(self) -> dict[str, Sink]:
        here = "project"
        return {
            "submodule": Sink(f"{here}/sub", ("status",)),
            "worktree": Sink("tree", ("status",)),
            "nested": Sink(f"{here}/nested/evil/work", ("status",)),
            "fsmonitor": Sink(here, ("status",)),
            "hook-post-index-change": Sink(here, ("update-index", "--force-write-index")),
            "hook-reference-transaction": Sink(here, ("tag", "now")),
            "hook-post-checkout": Sink(here, ("checkout", "-q", "-f", "main")),
            "driver": Sink(here, ("merge", "theirs")),
            "ssh": Sink(here, ("fetch", "ssh")),
            "transport": Sink(here, ("fetch", "ext")),
            "alias": Sink(here, ("evil",)),
            "include": Sink(here, ("included",)),
            "clean": Sink(here, ("status",), touched="data/a.txt"),
            "smudge": Sink(here, ("checkout", "--", "data/a.txt"), removed="data/a.txt"),
            "process": Sink(here, ("checkout", "--", "data/b.proc"), removed="data/b.proc"),
            "external": Sink(here, ("diff", "--", "src/a.py"), touched="src/a.py"),
            "textconv": Sink(here, ("log", "-p", "-2", "--no-ext-diff", "next")),
            "gpg": Sink(here, ("log", "-1", "main~1")),
            "environment": Sink(
                "lib",
                ("status",),
                {"GIT_DIR": str(self.folder / "aside/.git"), "GIT_WORK_TREE": str(self.folder / "aside")},
            ),
            "environment-config": Sink(
                "lib",
                ("status",),
                {
                    "GIT_CONFIG_COUNT": "1",
                    "GIT_CONFIG_KEY_0": "core.fsmonitor",
                    "GIT_CONFIG_VALUE_0": self.canaries.make("environment-config"),
                },
            ),
            "environment-diff": Sink(
                here,
                ("diff", "--", "src/a.py"),
                {"GIT_EXTERNAL_DIFF": self.canaries.make("environment-diff")},
                touched="src/a.py",
            ),
            "dash": Sink(here, ("log", f"--output={self.canaries.trace('dash')}")),
        }

    def set_off(self, name: str) -> None:
        """Run plain git, as a person does."""
        sink = self.sinks()[name]
        folder = self.folder / sink.folder
        if sink.touched is not None:
            file = folder / sink.touched
            file.write_text(file.read_text()[:-2] + "#\n")
        if sink.removed is not None:
            (folder / sink.removed).unlink(missing_ok=True)
        subprocess.run(
            ["git", *sink.words],
            cwd=folder,
            env=os.environ | sink.environ,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, Canaries(tmp_path))


def environ_of(project: Project) -> dict[str, str]:
    """Return all variables that an attacker, or a hook that starts a daemon, may have exported."""
    found = {name: value for sink in project.sinks().values() for name, value in sink.environ.items()}
    return found | {"GIT_SSH_COMMAND": project.canaries.make("environment-ssh")}


def declare(box: Box, project: Project) -> None:
    here, dash = project.root, f"--output={project.canaries.trace('dash')}"
    box.spec("sum", FILES.format(root=here))
    box.spec("tree", TREE.format(root=here))
    box.spec("level", COMMITS.format(root=here, path="src/", more="branch: main, export: true"))
    box.spec("each", COMMITS.format(root=here, path="src/", more="branch: main, each_commit: true"))
    box.spec("whole", COMMITS.format(root=here, path="./", more="branch: main"))
    box.spec("module", COMMITS.format(root=here / "sub", path="l.txt", more="branch: main"))
    box.spec("beside", COMMITS.format(root=project.folder / "tree", path="src/", more="branch: beside, export: true"))
    box.spec("hidden", COMMITS.format(root=here / "nested/evil/work", path="l.txt", more="branch: main"))
    box.spec("dash", COMMITS.format(root=here, path="src/", more=f'branch: "{dash}"'))


def declare_reader(box: Box, project: Project) -> None:
    """Declare an agent session that would read the commits as diffs. It has no key, so no model is called."""
    (box.specs / "agents").mkdir()
    (box.specs / "agents" / "reader.yaml").write_text("prompt: You read.\nmodel: anthropic:claude-test\n")
    bindings = "{code: {commits: src/, branch: main, settle: 10ms}, one: {commits: src/, branch: main, each_commit: true, settle: 10ms}}"
    box.spec(
        "reader",
        f"root: {project.root}\nagent: reader\nobjective: Read.\nfirst: adopt\nbindings: {bindings}\nrun: {{prompt: What changed?}}\n",
    )


def ask_everything(box: Box, project: Project) -> None:
    """Use every verb that looks at sessions, files and history. Refusals are ignored."""
    for name in ("sum", "tree", "level", "each", "whole", "module", "beside", "hidden"):
        for words in (
            ("show", name),
            ("why", name),
            ("log", name),
            ("diff", f"{name}@1", name, "--contents"),
            ("output", name),
        ):
            box.run(*words)
    for words in (
        ("list",),
        ("plan",),
        ("plan", "project/src/a.py"),
        ("why", "project/data/a.txt"),
        ("costs",),
        ("doctor",),
        ("search", "second"),
        ("export",),
        ("check",),
    ):
        box.run(*words)
    box.run("replay", "level", "1")
    box.run("replay", "sum", "1")
    box.run("save", "level", str(box.folder / "level.bundle"))


def fork_and_merge(box: Box, project: Project) -> None:
    """Fork with a checkout, and plant the canaries in the fork's git, as a run could.

    Then fork again, merge and rewind.
    """
    box.ask("fork", "sum", "--as", "trial", "--workspace")
    workspace = Path(box.json("show", "trial")["workspace"])
    shutil.copyfile(project.root / ".git/config", workspace / ".git/config")
    shutil.copytree(project.root / ".git/hooks", workspace / ".git/hooks", symlinks=True, dirs_exist_ok=True)
    (workspace / "data/a.txt").write_text("one, tried\n")
    runs = box.row("trial")["runs"]
    box.ask("activate", "trial")
    box.wait_at_rest("trial", runs=runs + 1)
    box.run("fork", "trial", "--as", "again", "--workspace")
    box.ask("fork", "level", "--as", "level-trial", "--workspace")
    box.run("diff", "sum", "trial", "--contents")
    runs = box.row("sum")["runs"]
    (project.root / "data/a.txt").write_text("one, here\n")
    # A merge is refused while the session runs.
    box.wait_at_rest("sum", runs=runs + 1)
    box.run("merge", "sum", "trial", "--dry-run")
    merged = box.run("merge", "sum", "trial")
    assert merged.returncode == 0, merged.stdout + merged.stderr
    box.run("rewind", "sum", "--to", "2", "--files", "--force")


def test_a_repository_of_canaries_is_bound_and_asked_about_in_every_way_and_none_of_them_sings(
    box: Box, project: Project
) -> None:
    """Looks, exports, runs, workspaces, merges, replays and all questions start none of the programs.

    Afterwards plain git starts each of them.
    """
    declare(box, project)
    declare_reader(box, project)
    box.start(env=environ_of(project))
    for name in ("sum", "tree", "level", "each", "whole", "module", "beside"):
        box.wait_at_rest(name, runs=1)
    project.move_on()
    for name in ("tree", "level", "each", "whole"):
        box.wait_at_rest(name, runs=2)
    assert (
        box.row("tree")["last_run"]["outcome"] == "succeeded"
        and "a = 2" in (project.root / "out-of-tree/sum.txt").read_text()
    )
    # The daemon looks at the repository around the folder, which has no such file.
    eventually(lambda: "code is not there" in box.words("show", "hidden"))
    eventually(lambda: box.json("context", "reader")["opening"][0]["text"].count("-a = 1\n+a = 2\n") == 2)
    ask_everything(box, project)
    fork_and_merge(box, project)
    box.stop()
    assert project.canaries.heard() == set()
    for name in project.sinks():
        project.canaries.forget()
        # Git can miss a change in the same moment in which its index was written. It may take a second call and some
        # time.
        eventually(
            lambda: project.set_off(name) or name in project.canaries.heard(),
            what=f"{name} to be a sink: else this test proves nothing of it",
        )
