"""No run reads the daemon's secrets or the folders of other runs, whatever its spec declares and wherever links
lead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from runners.conftest import Bench
from wakeful.core.spec.session import Confinement
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.bubblewrap import find_obstacle
from wakeful.runners.isolation.landlock import probe_abi
from wakeful.runners.isolation.reach import Protected
from wakeful.runners.isolation.shield import can_shield

CANARY = "canary-7c1f"
pytestmark = [pytest.mark.asyncio, pytest.mark.skipif(not probe_abi(), reason="this kernel has no Landlock")]
LEVELS = [
    "standard",
    pytest.param("strict", marks=pytest.mark.skipif(find_obstacle() is not None, reason="no bubblewrap")),
]
READ_ALL = "cat config/vault/token 2>/dev/null || true; find . -type f -exec cat {} + 2>/dev/null || true; cat config/beside.txt"


@pytest_asyncio.fixture
async def bench(tmp_path: Path, subreaper: None) -> AsyncIterator[Bench]:
    """A bench whose root is like a home folder: the vault lies in it, beside readable files."""
    vault, runs = tmp_path / "root" / "config" / "vault", tmp_path / "state" / "runs"
    bench = Bench(tmp_path, protected=Protected(state=str(tmp_path / "state"), hidden=(str(vault), str(runs))))
    vault.mkdir(parents=True)
    (vault / "token").write_text(CANARY)
    (vault.parent / "beside.txt").write_text("beside\n")
    (runs / "other.1").mkdir(parents=True)
    (runs / "other.1" / "secret").write_text(CANARY)
    (bench.root / "way").symlink_to("config/vault")
    (bench.root / "deep").mkdir()
    (bench.root / "deep" / "in").symlink_to("../config/vault/token")
    yield bench
    for run_id in bench.under_way():
        bench.runner.stop(run_id, "kill", 0)
    await bench.runner.close(0)


def ordered(bench: Bench, level: str, text: str = READ_ALL, **changes: object) -> RunOrder:
    return bench.shell(text, **({"writes": (), "confinement": Confinement(level=level)} | changes))


async def test_without_isolation_it_would_be_read(bench: Bench) -> None:
    """The attack works: without isolation the script below finds the secret."""
    ended = await bench.run(ordered(bench, "none"))
    assert CANARY.encode() in bench.output(ended)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("reads", [("**",), ("config/**",), ("config",), ("*/*.txt", "config/beside.txt")])
async def test_what_holds_it_can_be_read_without_it(bench: Bench, level: str, reads: tuple[str, ...]) -> None:
    """The run may read a folder around the vault, as a whole or by a pattern.

    It reads the files beside the vault, and not the vault.
    """
    ended = await bench.run(ordered(bench, level, reads=reads))
    assert CANARY.encode() not in bench.output(ended) and b"beside" in bench.output(ended), (
        ended.problem,
        bench.output(ended),
    )


@pytest.mark.parametrize("level", LEVELS)
async def test_what_is_allowed_besides_does_not_open_it(bench: Bench, level: str) -> None:
    """The session's root is elsewhere, and `allow.read` names a folder around the vault."""
    other = bench.folder / "elsewhere"
    other.mkdir()
    confinement = Confinement(level=level, allow_read=(str(bench.root),))
    ended = await bench.run(
        ordered(bench, level, f"cd {bench.root}\n{READ_ALL}", root=str(other), confinement=confinement)
    )
    assert CANARY.encode() not in bench.output(ended) and b"beside" in bench.output(ended), (
        ended.problem,
        bench.output(ended),
    )


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "read",
    ["config/vault/token", "config/vault", "config/vault/*", "way/token", "way/**", "deep/in", "{runs}/other.1/secret"],
)
async def test_asking_for_it_by_any_name_is_refused_in_words(bench: Bench, level: str, read: str) -> None:
    """The binding names the secret by its path, by a pattern, by a link to the file, or by a link to its folder."""
    ended = await bench.run(ordered(bench, level, "cat $0", reads=(read.format(runs=bench.state / "runs"),)))
    assert ended.problem is not None and "list those that the run needs under secrets" in ended.problem


@pytest.mark.parametrize("level", LEVELS)
async def test_other_runs_folders_stay_theirs(bench: Bench, level: str) -> None:
    """The run finds its own folder, with the token by which it calls the daemon."""
    text = f"cat {bench.state}/runs/other.1/secret 2>/dev/null || true; test -s $WAKEFUL_TOKEN_FILE && echo own"
    ended = await bench.run(
        ordered(bench, level, text, confinement=Confinement(level=level, allow_read=(str(bench.state),)))
    )
    assert bench.output(ended) == b"own\n", (ended.problem, bench.output(ended))


@pytest.mark.skipif(not can_shield(), reason="only who may mount can open a folder around it for writing")
async def test_a_folder_around_it_that_is_written_shows_it_empty(bench: Bench) -> None:
    """The run can make new files beside the vault.

    During the run the vault is an empty folder, and afterwards it is as before.
    """
    text = f"{READ_ALL}; echo 1 > config/new.txt; ls -A config/vault | wc -l; test -s $WAKEFUL_TOKEN_FILE && echo own"
    ended = await bench.run(ordered(bench, "standard", text, writes=("**",)))
    assert CANARY.encode() not in bench.output(ended) and bench.output(ended).endswith(b"beside\n0\nown\n"), (
        ended.problem,
        bench.output(ended),
    )
    assert (bench.root / "config" / "vault" / "token").read_text() == CANARY and (
        bench.root / "config" / "new.txt"
    ).exists()


@pytest.mark.skipif(not can_shield(), reason="only who may mount can open a folder around it for writing")
async def test_the_next_run_of_a_session_finds_its_own_folder_beside_what_is_hidden_too(bench: Bench) -> None:
    """The second run uses the plan of the first, with its own folder in place of the first run's."""
    for _ in range(2):
        ended = await bench.run(ordered(bench, "standard", "test -s $WAKEFUL_TOKEN_FILE && echo own", writes=("**",)))
        assert bench.output(ended) == b"own\n", (ended.problem, bench.output(ended))
