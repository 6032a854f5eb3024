"""Real strict runs: the contents of their view, their ends, and the landing of the files they write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from runners.conftest import Bench
from wait_conditions import eventually_async
from wakeful.core.record.observations import ProcessEnded, StagedOutput
from wakeful.core.spec.bindings import FileBinding
from wakeful.core.spec.session import Confinement, RunLimits, SessionSpec
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.bubblewrap import BubblewrapLaunch, find_obstacle
from wakeful.runners.isolation.reach import Protected, make_plan
from wakeful.runners.outputs import landing
from wakeful.runners.outputs.landing import Bounds, put_in_place
from wakeful.runners.outputs.staging import digest_entry
from wakeful.runners.process import procfs

OBSTACLE = find_obstacle()
pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(OBSTACLE is not None, reason=f"nothing can be isolated strictly here: {OBSTACLE}"),
]
NOBODY = 65534
STRICT = Confinement(level="strict")


def strictly(bench: Bench, text: str, **changes: object) -> RunOrder:
    """Return an order for a script in its own view, with staged outputs."""
    order = bench.shell(text, **({"confinement": STRICT, "writes": ("out/*",)} | changes))
    return RunOrder(
        **{name: getattr(order, name) for name in order.__struct_fields__}
        | {"staging": str(bench.state / "staged" / order.run_id)}
    )


def staged(ended: ProcessEnded) -> dict[str, tuple[bool, bool]]:
    """Return for each staged path whether it existed before the run and whether it exists after it."""
    assert ended.staged is not None
    return {output.path: (output.base is not None, output.new is not None) for output in ended.staged}


async def test_to_try_it_leaves_no_process(subreaper: None) -> None:
    """The daemon adopts the orphans of its programs. An orphan of this check would never be reaped."""
    before = procfs.children_of(os.getpid())
    assert find_obstacle() is None
    assert procfs.children_of(os.getpid()) == before


async def test_a_run_finds_its_files_its_programs_and_no_more_descriptors_than_others(bench: Bench) -> None:
    """The run reads its inputs, writes its outputs and its scratch, and inherits no descriptor that leads out of
    its view.
    """
    (bench.root / "in.csv").write_text("input\n")
    text = "cat in.csv; echo x > out/x; echo y > $WAKEFUL_SCRATCH/y; echo z > $TMPDIR/z; ls /proc/self/fd | wc -l; nproc >/dev/null; date >/dev/null"
    ended = await bench.run(strictly(bench, text, reads=("in.csv",)))
    # ls has opened the folder that it lists.
    assert (ended.exit_code, bench.output(ended).split()) == (0, [b"input", b"4"])
    assert staged(ended) == {"out/x": (False, True)}
    assert (bench.state / "scratch" / "y").exists() and not (bench.root / "out" / "x").exists()
    assert ended.isolation is not None and ended.isolation.level == "strict"


async def test_a_run_whose_folder_lies_in_shared_memory_finds_it_there_and_nothing_else(bench: Bench) -> None:
    """A daemon without a runtime folder, as when started by hand from a plain shell, keeps run folders in /dev/shm."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="wakeful-test-") as folder:
        Path(folder, "other").write_text("somebody else's")
        text = f"cat $WAKEFUL_CAUSES $WAKEFUL_TOKEN_FILE; ls {folder}; echo x > $(dirname $WAKEFUL_CAUSES)/x || true; echo y > /dev/shm/y"
        ended = await bench.run(strictly(bench, text, folder=f"{folder}/own"))
        said = bench.output(ended).decode()
        assert ended.exit_code == 0 and said.startswith("{}secretown\n") and "Read-only" in said, said
    assert not Path("/dev/shm/y").exists()


async def test_programs_outside_the_system_are_found_by_their_links(bench: Bench) -> None:
    """The programs are in a virtual environment, and behind a link in a folder of PATH."""
    folder = bench.folder / "own" / "bin"
    folder.mkdir(parents=True)
    real = bench.folder / "elsewhere" / "tool"
    real.parent.mkdir()
    real.write_text("#!/bin/sh\necho tool\n")
    real.chmod(0o755)
    (folder / "tool").symlink_to("../../elsewhere/tool")
    path = f"{folder}:{os.environ['PATH']}"
    ended = await bench.run(
        strictly(bench, f"tool; {sys.executable} -c 'import msgspec; print(1)'", env={"PATH": path})
    )
    assert (ended.exit_code, bench.output(ended).split()) == (0, [b"tool", b"1"]), bench.output(ended)


@pytest.mark.parametrize("asked", ["reads", "allow_read"])
async def test_what_is_bound_by_a_link_is_found_by_it_and_by_where_it_leads(bench: Bench, asked: str) -> None:
    """`current.csv` is a link to this month's file, and `behind` a link to a folder beside root."""
    (bench.root / "months").mkdir()
    (bench.root / "months/11.csv").write_text("november ")
    (bench.root / "months/10.csv").write_text("october")
    (bench.root / "current.csv").symlink_to("months/11.csv")
    (bench.folder / "shared").mkdir()
    (bench.folder / "shared/a").write_text("a ")
    (bench.folder / "behind").symlink_to("shared")
    bound = ("current.csv", str(bench.folder / "behind"))
    order = strictly(
        bench,
        f"cat current.csv months/11.csv {bench.folder}/behind/a; readlink current.csv; ! cat months/10.csv",
        reads=bound if asked == "reads" else (),
    )
    if asked == "allow_read":
        order = msgspec.structs.replace(order, confinement=msgspec.structs.replace(STRICT, allow_read=bound))
    ended = await bench.run(order)
    assert ended.exit_code == 0 and bench.output(ended).startswith(b"november november a months/11.csv\n"), (
        bench.output(ended)
    )


async def test_a_root_that_is_reached_by_a_link_is_found_by_it(bench: Bench) -> None:
    """People may reach their root by a link."""
    link = bench.folder / "link"
    link.symlink_to(bench.root)
    (bench.root / "in").write_text("1")
    ended = await bench.run(strictly(bench, f"cat {link}/in; echo x > {link}/out/x", root=str(link), reads=("in",)))
    assert (ended.exit_code, bench.output(ended), staged(ended)) == (0, b"1", {"out/x": (False, True)})


async def test_what_is_read_beside_outputs_is_seen_and_cannot_be_written(bench: Bench) -> None:
    """Inputs and outputs share a folder.

    The view has the bound inputs one by one, links and folders too, and no unbound file.
    """
    data = bench.root / "data"
    (data / "deep").mkdir(parents=True)
    for name in ("a.csv", "deep/b.csv", "out.csv"):
        (data / name).write_text(name)
    (data / "link.csv").symlink_to("a.csv")
    (bench.root / "other").write_text("x")
    text = "cat data/a.csv data/deep/b.csv data/out.csv data/link.csv; ls; echo new > data/out.csv; echo x > data/a.csv"
    ended = await bench.run(strictly(bench, text, reads=("data/**",), writes=("data/out.csv",)))
    assert bench.output(ended).startswith(b"a.csvdeep/b.csvout.csva.csvdata\n")
    assert ended.exit_code != 0 and b"Read-only file system" in bench.output(ended)
    assert staged(ended) == {"data/out.csv": (True, True)} and ended.undeclared == ()


async def test_too_much_beside_outputs_is_refused_in_words(bench: Bench) -> None:
    """Otherwise every run would take seconds to prepare."""
    (bench.root / "data").mkdir()
    for number in range(300):
        (bench.root / "data" / f"{number}.csv").touch()
    ended = await bench.run(strictly(bench, "true", reads=("data/*.csv",), writes=("data/out.txt",)))
    assert ended.problem is not None and "give outputs a folder of their own" in ended.problem


async def test_patterns_of_outputs_cover_new_changed_and_removed_files(bench: Bench) -> None:
    """The folders are old and new.

    Files that were not touched, or were written with the same content, are not staged.
    """
    for name in ("site/a.html", "site/deep/b.html", "site/c.html", "site/same.html", "site/style.css"):
        (bench.root / name).parent.mkdir(parents=True, exist_ok=True)
        (bench.root / name).write_text(name)
    text = "echo new > site/a.html; rm site/deep/b.html; mkdir site/new; echo d > site/new/d.html; printf site/same.html > site/same.html; ls site"
    ended = await bench.run(strictly(bench, text, writes=("site/**/*.html",)))
    assert staged(ended) == {
        "site/a.html": (True, True),
        "site/deep/b.html": (True, False),
        "site/new/d.html": (False, True),
    }
    # No binding reads it.
    assert b"style.css" not in bench.output(ended)


@pytest.mark.parametrize(("how", "number"), [("interrupt", signal.SIGINT), ("terminate", signal.SIGTERM)])
async def test_the_program_has_its_grace(bench: Bench, how: str, number: int) -> None:
    """The signal reaches the program and not bubblewrap, so that the program can clean up."""
    name = signal.Signals(number).name.removeprefix("SIG")
    text = (
        f"trap 'echo got {name}; exit 7' {name}; echo begun > $WAKEFUL_SCRATCH/begun; while true; do sleep 0.05; done"
    )
    run_id = bench.start(strictly(bench, text))
    await eventually_async(lambda: (bench.state / "scratch" / "begun").exists())
    bench.runner.stop(run_id, how, 60.0)
    ended = await bench.end_of(run_id)
    # The shell may also report that its sleep was terminated.
    assert ended.exit_code == 7 and bench.output(ended).endswith(f"got {name}\n".encode())


async def test_a_tree_that_does_not_want_to_end_is_ended(bench: Bench) -> None:
    """The processes ignore signals and have their own sessions. After the grace none of them is left."""
    text = (
        "trap '' INT TERM; setsid sh -c 'trap \"\" TERM; sleep 1000' & echo begun > $WAKEFUL_SCRATCH/begun; sleep 999"
    )
    run_id = bench.start(strictly(bench, text))
    await eventually_async(lambda: (bench.state / "scratch" / "begun").exists())
    bench.runner.stop(run_id, "terminate", 0.3)
    await bench.end_of(run_id)
    assert not [
        path
        for path in Path("/proc").glob("[0-9]*/environ")
        if run_id.encode() in _read(path) and str(bench.state).encode() in _read(path)
    ]


async def test_a_background_process_ends_with_its_run(bench: Bench) -> None:
    """As at every level, the run ends with its program, and its leftover processes end with it."""
    ended = await bench.run(strictly(bench, "sleep 1000 & setsid sleep 1000 & exit 0"))
    assert ended.exit_code == 0
    assert not [
        path
        for path in Path("/proc").glob("[0-9]*/environ")
        if str(bench.state).encode() in _read(path) and b"run-1" in _read(path)
    ]


async def test_a_run_that_is_stopped_while_its_view_is_made_does_not_begin(bench: Bench) -> None:
    """Copies may take a while, and a person may stop the run meanwhile."""
    run_id = bench.start(strictly(bench, "echo begun > out/x"))
    bench.runner.stop(run_id, "terminate", 5.0)
    ended = await bench.end_of(run_id)
    assert (ended.exit_code, ended.signal, ended.problem) == (None, None, "stopped before it began")
    assert ended.output.total_bytes == 0 and staged(ended) == {} and not (bench.root / "out" / "x").exists()


async def test_a_program_that_is_not_there_is_told_in_our_words(bench: Bench) -> None:
    """The message is ours, not that of bubblewrap."""
    order = bench.order("no-such-program", confinement=STRICT, writes=(), staging=str(bench.state / "staged" / "x"))
    ended = await bench.run(order)
    assert ended.problem is not None and "no such program in PATH" in ended.problem


async def test_the_check_sees_what_was_staged(bench: Bench) -> None:
    """The check runs before any output lands."""
    ended = await bench.run(strictly(bench, "echo bad > out/x", check=("grep", "-q", "good", "out/x")))
    assert ended.problem is not None and "the check" in ended.problem
    ended = await bench.run(strictly(bench, "echo good > out/x", check=("grep", "-q", "good", "out/x")))
    assert (ended.exit_code, ended.problem) == (0, None)


async def test_limits_hold_in_a_view(bench: Bench) -> None:
    """The run writes a file beyond its size limit."""
    ended = await bench.run(strictly(bench, "head -c 100000 /dev/zero > out/x", limits=RunLimits(file_bytes=4096)))
    assert ended.exit_code != 0


async def test_without_an_area_a_strict_run_writes_directly(bench: Bench) -> None:
    """A replay has its own copy to write in."""
    order = bench.shell("echo x > out/x", confinement=STRICT, writes=("out/*",))
    ended = await bench.run(order)
    assert ended.staged is None and (bench.root / "out" / "x").read_text() == "x\n"


@pytest.mark.parametrize("network", [False, True])
async def test_it_holds_for_a_user_without_privileges(tmp_path: Path, network: bool) -> None:
    """An unprivileged user gets the same view, in a user namespace of its own."""
    if os.geteuid() != 0:
        pytest.skip("the other tests are without privileges already")
    for above in (tmp_path, *tmp_path.parents):
        if above == Path("/tmp"):
            break
        above.chmod(0o755)
    for name in ("scratch", "temporary", "run", "root"):
        (tmp_path / name).mkdir()
        os.chown(tmp_path / name, NOBODY, NOBODY)
    (tmp_path / "root" / "in").write_text("input")
    order = RunOrder(
        session="s", name="s", run=1, run_id="s.1", argv=("true",), root=str(tmp_path / "root"), cwd="", timeout_seconds=9, grace_seconds=1,
        scratch=str(tmp_path / "scratch"), temporary=str(tmp_path / "temporary"), folder=str(tmp_path / "run"), causes=b"", socket="/none",
        token="", output_limit_bytes=1, reads=("in",), confinement=Confinement(level="strict", network=network),
    )  # fmt: skip
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        os._exit(_look_around(order))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def _look_around(order: RunOrder) -> int:
    """Return 0 if the run reads its input, writes its scratch, sees no other process, and cannot change its input."""
    environment = {"PATH": "/usr/bin:/bin"}
    launch = BubblewrapLaunch(
        order, environment, make_plan(order, environment, Protected()).conclude_view(order.folder), None
    )
    text = f"cat in && echo x > {order.scratch}/x && ! echo x > in && test ! -e {order.root}/../outside && test $(ls -d /proc/[0-9]* | wc -l) -le 5"

    def spawn(prefix: Sequence[str] = (), fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
        return subprocess.Popen((*prefix, "/bin/sh", "-c", text), pass_fds=fds, env=environment)

    return launch(spawn).wait(60)


# -- landing --------------------------------------------------------------------------------------


class Berth:
    """A staging area with one output, and the place where the output belongs."""

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        self.root = root or folder / "root"
        self.area, self.aside = folder / "area", folder / "aside"
        (self.root / "out").mkdir(parents=True, exist_ok=True)
        (self.area / "0").mkdir(parents=True)
        (self.area / "0" / "x").write_text("new")
        self.target = self.root / "out" / "x"

    def land(
        self,
        *,
        base: str | None,
        new: str | None = "new",
        path: str = "out/x",
        write: str = "out/x",
        guarded: tuple[str, ...] = (),
    ) -> tuple[str, ...]:
        output = StagedOutput(path=path, base=_digest(self.area, base), new=_digest(self.area, new), place="0/x")
        spec = SessionSpec(
            name="s", root=str(self.root), bindings=(FileBinding(name="w", pattern=write, access="write"),)
        )
        bounds = Bounds.of(spec, guarded)
        return tuple(
            kept.words for kept in put_in_place((output,), str(self.root), str(self.area), str(self.aside), bounds)
        )


def _digest(folder: Path, text: str | None) -> str | None:
    if text is None:
        return None
    sample = folder / "sample"
    sample.write_text(text)
    return digest_entry(str(sample), None)


async def test_landing_twice_is_landing_once(tmp_path: Path) -> None:
    """An output that is in place already is skipped, even if its staged copy is gone."""
    berth = Berth(tmp_path)
    berth.target.write_text("old")
    assert berth.land(base="old") == () and berth.target.read_text() == "new"
    assert berth.land(base="old") == () and berth.target.read_text() == "new"
    assert not berth.aside.exists()


@pytest.mark.parametrize(("base", "present"), [("old", "theirs"), (None, "theirs"), ("old", None)])
async def test_what_is_neither_stays_and_the_runs_own_is_kept(
    tmp_path: Path, base: str | None, present: str | None
) -> None:
    """Others changed, made or removed the file meanwhile. A second landing has the same result."""
    berth = Berth(tmp_path)
    if present is not None:
        berth.target.write_text(present)
    for _ in range(2):
        [words] = berth.land(base=base)
        assert "that version stays" in words
        assert (berth.target.read_text() if berth.target.exists() else None) == present
        assert (berth.aside / "out" / "x").read_text() == "new"


async def test_an_edit_in_the_last_moment_goes_back_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The edit comes between the comparison and the rename.

    The file that the rename took out is compared again, and differs from the one at the run's start.
    """
    berth = Berth(tmp_path)
    berth.target.write_text("old")
    rename, edited = landing.rename_at, set[Path]()

    def edit_and_rename(*arguments: object) -> int:
        if berth.target not in edited:
            edited.add(berth.target)
            berth.target.write_text("theirs")
        return rename(*arguments)

    monkeypatch.setattr(landing, "rename_at", edit_and_rename)
    [words] = berth.land(base="old")
    assert "that version stays" in words and berth.target.read_text() == "theirs"
    assert (berth.aside / "out" / "x").read_text() == "new"
    # A file that did not exist before is not overwritten either.
    berth = Berth(tmp_path / "again")
    assert len(berth.land(base=None)) == 1 and berth.target.read_text() == "theirs"


@pytest.mark.parametrize(("write", "path"), [("out/*", "out/x"), ("out/x", "out/x"), ("**/*", ".git/hooks/x")])
async def test_nothing_lands_in_git_that_the_binding_does_not_name(tmp_path: Path, write: str, path: str) -> None:
    """The way into `.git` is a link that replaced the output's folder, or a pattern.

    A path that the binding names does land.
    """
    berth = Berth(tmp_path)
    (berth.root / ".git/hooks").mkdir(parents=True)
    (berth.root / "out").rmdir()
    (berth.root / "out").symlink_to(".git/hooks")
    assert len(berth.land(base=None, path=path, write=write)) == 1
    assert not (berth.root / ".git/hooks/x").exists() and (berth.aside / path).read_text() == "new"
    (berth.area / "0" / "x").write_text("new")
    assert berth.land(base=None, path=".git/hooks/x", write=".git/hooks/*") == ()
    assert (berth.root / ".git/hooks/x").read_text() == "new"


async def test_a_removal_lands_unless_others_changed_it(tmp_path: Path) -> None:
    """A file that is gone already needs no removal."""
    berth = Berth(tmp_path)
    berth.target.write_text("old")
    assert berth.land(base="old", new=None) == () and not berth.target.exists()
    assert berth.land(base="old", new=None) == ()
    berth.target.write_text("theirs")
    assert len(berth.land(base="old", new=None)) == 1 and berth.target.read_text() == "theirs"


async def test_a_removal_from_a_folder_that_is_gone_has_landed(tmp_path: Path) -> None:
    """A person removed the whole folder meanwhile, so there is nothing to do and nothing to wait for."""
    berth = Berth(tmp_path)
    (berth.root / "out").rmdir()
    assert berth.land(base="old", new=None) == ()


async def test_what_cannot_be_kept_aside_either_is_told(tmp_path: Path) -> None:
    """If the run's version cannot be kept anywhere, the landing ends all the same, with both reasons."""
    berth = Berth(tmp_path)
    berth.target.write_text("theirs")
    berth.aside.write_text("no folder")
    [words] = berth.land(base="old")
    assert "that version stays" in words and "could not be kept" in words and berth.target.read_text() == "theirs"


async def test_a_link_that_was_swapped_in_leads_nowhere(tmp_path: Path) -> None:
    """A link replaces the folder of outputs while the run is under way. Nothing is written behind the link."""
    berth = Berth(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (berth.root / "out").rmdir()
    (berth.root / "out").symlink_to(outside)
    [words] = berth.land(base=None)
    assert "leads out of" in words and not list(outside.iterdir())
    assert (berth.aside / "out" / "x").read_text() == "new"


@pytest.mark.parametrize(
    ("write", "path"), [("**", "link/x"), ("**", "link/new/x"), ("l*/*", "link/x"), ("link", "link/x")]
)
async def test_a_link_that_a_run_may_have_landed_before_leads_nowhere(tmp_path: Path, write: str, path: str) -> None:
    """This holds also for a link inside root: behind a link that the spec does not spell out, no binding matches."""
    berth = Berth(tmp_path)
    (berth.root / "private").mkdir()
    (berth.root / "link").symlink_to("private")
    [words] = berth.land(base=None, path=path, write=write)
    assert "a symbolic link in its path leads to" in words and not list((berth.root / "private").iterdir())


async def test_a_link_that_the_spec_spells_out_is_followed_inside_of_root(tmp_path: Path) -> None:
    """The author of the spec named the link, so it counts like its target."""
    berth = Berth(tmp_path)
    (berth.root / "private").mkdir()
    (berth.root / "link").symlink_to("private")
    assert berth.land(base=None, path="link/x", write="link/*") == ()
    assert (berth.root / "private" / "x").read_text() == "new"


async def test_what_no_run_may_change_is_not_landed_either(tmp_path: Path) -> None:
    """The pattern covers the specs. A run's output for them does not land, and the message says so."""
    berth = Berth(tmp_path)
    (berth.root / "sessions.d").mkdir()
    guarded = (os.path.realpath(berth.root / "sessions.d"), os.path.realpath(berth.root / "wakeful.yaml"))
    for path in ("sessions.d/evil.yaml", "sessions.d/deep/evil.yaml", "wakeful.yaml"):
        (berth.area / "0" / "x").write_text("new")
        [words] = berth.land(base=None, path=path, write="**", guarded=guarded)
        assert "which no run may change" in words and not (berth.root / path).exists()
    assert not list((berth.root / "sessions.d").iterdir())


async def test_a_root_that_was_made_in_the_state_folder_is_its_own(tmp_path: Path) -> None:
    """A fork works in such a root. The other guarded places stay guarded."""
    berth = Berth(tmp_path, root=tmp_path / "state/workspaces/trial-1")
    guarded = (os.path.realpath(tmp_path / "state"), os.path.realpath(berth.root / "out"))
    assert (
        berth.land(base=None, path="x", write="**", guarded=guarded) == () and (berth.root / "x").read_text() == "new"
    )
    (berth.area / "0" / "x").write_text("new")
    assert len(berth.land(base=None, path="out/x", write="**", guarded=guarded)) == 1


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", "out/.git/config", "elsewhere/x"])
async def test_only_what_a_write_binding_means_is_landed(tmp_path: Path, path: str) -> None:
    """Default excludes of bindings count here, too. Otherwise a person might run a git hook that a run wrote."""
    berth = Berth(tmp_path)
    write = "out/**" if path.startswith("elsewhere") else "**"
    [words] = berth.land(base=None, path=path, write=write)
    assert words == "no write binding matches it" and not (berth.root / path).exists()


async def test_outputs_land_on_another_file_system(tmp_path: Path) -> None:
    """The output is copied beside its target and then renamed. A half copy from before is replaced."""
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system here")
    with tempfile.TemporaryDirectory(dir=shared, prefix="wakeful-test-") as folder:
        berth = Berth(tmp_path, root=Path(folder))
        berth.target.write_text("old")
        (berth.root / "out" / ".x.wakeful.tmp").write_text("half")
        (berth.area / "0" / "x").chmod(0o640)
        assert berth.land(base="old") == ()
        assert berth.target.read_text() == "new" and berth.target.stat().st_mode & 0o777 == 0o640
        assert [path.name for path in (berth.root / "out").iterdir()] == ["x"]
        assert berth.land(base="old") == ()


async def test_a_folder_in_the_place_of_an_output_is_a_conflict(tmp_path: Path) -> None:
    """A folder is neither the earlier file nor the run's output."""
    berth = Berth(tmp_path)
    berth.target.mkdir()
    assert len(berth.land(base=None)) == 1 and berth.target.is_dir()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("level", ["strict", "standard"])
async def test_a_venv_inside_root_is_seen_with_its_python(bench: Bench, level: str) -> None:
    """The Python is found by the links of the venv.

    An installed program, which names that Python in its first line, works too.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bench.root / ".venv")], check=True)
    tool = bench.root / ".venv/bin/tool"
    tool.write_text(f"#!{bench.root}/.venv/bin/python\nimport sys, json; print(sys.prefix)\n")
    tool.chmod(0o755)
    text = ".venv/bin/python -c 'import sys, json; print(sys.prefix)'; .venv/bin/tool"
    ended = await bench.run(
        msgspec.structs.replace(strictly(bench, text), confinement=Confinement(level=level), writes=("out/",))
    )
    assert bench.output(ended).decode().split() == [f"{bench.root}/.venv"] * 2
    assert ended.isolation is not None and ".venv" in ended.isolation.derived
