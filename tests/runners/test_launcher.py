"""Where no thread of the daemon may mount, a small program shields places and then becomes the run's program.

A run differs in nothing but the shield.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from runners.conftest import Bench
from wait_conditions import eventually_async
from wakeful.core.spec.session import Confinement
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.landlock import probe_abi
from wakeful.runners.isolation.reach import Protected
from wakeful.runners.isolation.shield import can_shield

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(not probe_abi(), reason="this kernel has no Landlock"),
    pytest.mark.skipif(not can_shield(), reason="nobody may mount here: NOTHING BESIDE AN OUTPUT CAN BE SHIELDED"),
]


@pytest_asyncio.fixture(params=["thread", "launcher"])
async def bench(
    request: pytest.FixtureRequest, tmp_path: Path, subreaper: None, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Bench]:
    """A bench whose root is a checkout. An output in it opens the folder that holds `.git`."""
    if request.param == "launcher":
        monkeypatch.setattr("wakeful.runners.isolation.confined_spawn.can_mount", lambda: False)
    elif os.geteuid() != 0:
        pytest.skip("a thread of an ordinary user may not mount")
    made = Bench(tmp_path, protected=Protected(state=str(tmp_path / "state")))
    (made.root / ".git/hooks").mkdir(parents=True)
    (made.root / ".git/config").write_text("[core]\n")
    yield made
    for run_id in made.under_way():
        made.runner.stop(run_id, "kill", 0)
    await made.runner.close(0)


def ordered(bench: Bench, text: str, **changes: object) -> RunOrder:
    return bench.shell(text, **({"writes": ("note.md",), "confinement": Confinement(level="standard")} | changes))


async def test_git_is_read_only_and_the_output_is_written(bench: Bench) -> None:
    ended = await bench.run(
        ordered(bench, "(echo evil > .git/hooks/post-commit) || true; cat .git/config; echo one > new; mv new note.md")
    )
    assert (bench.root / "note.md").read_text() == "one\n"
    assert not (bench.root / ".git/hooks/post-commit").exists()
    assert b"Read-only file system" in bench.output(ended) and b"[core]" in bench.output(ended)


async def test_a_run_finds_what_it_is_handed_and_no_more(bench: Bench) -> None:
    """The environment, folder, descriptors and signals are those of a program that was started directly."""
    text = "env | sort > note.md; pwd; ls -l /proc/self/fd | wc -l; grep -E 'SigIgn|CapEff|NoNewPrivs|Seccomp:' /proc/self/status"
    ended = await bench.run(ordered(bench, text, env={"ODD": "a\nb", "LC_ALL": "C"}))
    assert ended.exit_code == 0, bench.output(ended)
    names = {line.partition("=")[0] for line in (bench.root / "note.md").read_text().splitlines() if "=" in line}
    assert "LC_CTYPE" not in names and "ODD" in names
    told = bench.output(ended).decode()
    assert told.splitlines()[0] == str(bench.root)
    # Three descriptors, the open folder of the listing, and the line above them.
    assert told.splitlines()[1].strip() == "5"
    assert "NoNewPrivs:\t1" in told and "Seccomp:\t2" in told
    # The run does not inherit the signals that Python ignores. The shell that started the suite may ignore more.
    ignored = int(told.partition("SigIgn:\t")[2][:16], 16)
    assert not ignored & sum(1 << number - 1 for number in (signal.SIGPIPE, signal.SIGXFSZ))


async def test_it_ends_as_its_program_does(bench: Bench) -> None:
    assert (await bench.run(ordered(bench, "exit 7"))).exit_code == 7
    assert (await bench.run(ordered(bench, "kill -9 $$"))).signal == signal.SIGKILL


async def test_it_is_interrupted_as_its_program_is(bench: Bench) -> None:
    order = ordered(
        bench, "trap 'echo told > note.md; exit 3' INT; echo ready > ready.txt; while :; do sleep 0.05; done"
    )
    bench.start(order)
    await eventually_async(lambda: (bench.root / "ready.txt").exists())
    bench.runner.stop(order.run_id, "interrupt", 10)
    ended = await bench.end_of(order.run_id)
    assert ended.exit_code == 3 and (bench.root / "note.md").read_text() == "told\n"


async def test_a_program_that_is_not_there_is_said_so(bench: Bench) -> None:
    ended = await bench.run(
        bench.order("no-such-program", writes=("note.md",), confinement=Confinement(level="standard"))
    )
    assert ended.exit_code is None and "no-such-program" in (ended.problem or "")


@pytest.fixture
def unshielded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that lets no user mount, as on some distributions."""
    monkeypatch.setattr("wakeful.runners.isolation.reach.can_shield", lambda: False)


async def test_where_nothing_can_be_mounted_an_output_beside_git_is_granted_alone(
    bench: Bench, unshielded: None
) -> None:
    ended = await bench.run(
        ordered(bench, "(echo evil >> .git/config) || true; (echo x > beside.txt) || true; echo one > note.md")
    )
    assert (bench.root / "note.md").read_text() == "one\n", bench.output(ended)
    assert (bench.root / ".git/config").read_text() == "[core]\n" and not (bench.root / "beside.txt").exists()


async def test_where_nothing_can_be_mounted_what_lies_beside_git_is_granted_one_by_one(
    bench: Bench, unshielded: None
) -> None:
    """The existing entries are granted when the run begins.

    The record says that no new ones can be made beside `.git`.
    """
    (bench.root / "docs").mkdir()
    (bench.root / "a.md").write_text("old\n")
    text = "(echo evil >> .git/config) || true; (mv .git x) || true; (echo new > b.md) || true; echo one > a.md; echo two > docs/new.md; cat .git/config"
    ended = await bench.run(ordered(bench, text, writes=("**/*.md",)))
    assert ended.exit_code == 0, bench.output(ended)
    assert (bench.root / "a.md").read_text() == "one\n" and (bench.root / "docs/new.md").read_text() == "two\n"
    assert (bench.root / ".git/config").read_text() == "[core]\n" and not (bench.root / "b.md").exists()
    assert any(words.startswith("new names in") for words in ended.isolation.unenforced)
