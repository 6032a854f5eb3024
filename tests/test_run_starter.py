"""A run between its record and its process: an error ends the run in words, and an unwanted run does not begin."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from wakeful.core.deciding.working_state import Core
from wakeful.core.record.observations import ProcessEnded
from wakeful.core.record.state import OpenRun, Session
from wakeful.core.spec.bindings import FileBinding
from wakeful.core.spec.session import ScriptRun, SessionSpec
from wakeful.errors import CallerError, OperatorError
from wakeful.runners.contract import RunOrder
from wakeful.runners.run.orders import RunLocations, make_order
from wakeful.secrets.known_secrets import KnownSecrets
from wakeful.secrets.store import SecretPlaces
from wakeful.service.run_starter import ReadReceived, RunStarter
from wakeful.sources.git.checkouts import Checkouts
from wakeful.workspaces.run_workspaces import RunPlace, RunPlaces

pytestmark = pytest.mark.asyncio
AT = 1_700_000_000_000_000


class Orders:
    """A stub runner that records orders. None of its runs begins."""

    def __init__(self) -> None:
        self.started: list[RunOrder] = []
        self.prepared: list[RunOrder] = []

    def prepare(self, order: RunOrder) -> SimpleNamespace:
        self.prepared.append(order)
        return SimpleNamespace(launch=lambda: self.started.append(order), discard=lambda: None)

    def usage(self, run_id: str) -> None:
        return None


class FailingPlaces(RunPlaces):
    """Workspaces whose making fails with the given error, or hangs."""

    problem: Exception | None = None

    async def make(self, spec: SessionSpec, run_id: str) -> RunPlace:
        if self.problem is not None:
            raise self.problem
        return await asyncio.Future()


class Gate:
    def __init__(self, folder: Path) -> None:
        spec = SessionSpec(name="s", root=str(folder), bindings=(), run=ScriptRun(text="true", workspace="copy"))
        self.run = OpenRun(
            run=1, run_id="id.1", wake=1, attempt=0, incarnation="i", started_at=AT, versions={}, causes=(), spec=spec
        )
        self.session = Session(id="id", name="s", opened_at=AT, spec=spec, run=self.run)
        self.places = FailingPlaces(str(folder / "state"), str(folder / "staged"), Checkouts())
        self.runner = Orders()
        self.reports: list[ProcessEnded] = []
        nobody = cast(Any, None)
        self.starter = RunStarter(
            Core([self.session]),
            nobody,
            cast(Any, self.runner),
            nobody,
            nobody,
            str(folder),
            self.reports.append,
            nobody,
            nobody,
            lambda name: None,
            self.places,
        )

    async def settle(self) -> None:
        self.starter.start(self.session, self.run)
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    "problem", [RuntimeError("half a thought"), OperatorError("no room"), OSError(28, "No space left on device")]
)
async def test_whatever_fails_while_a_run_is_prepared_ends_it_in_words(tmp_path: Path, problem: Exception) -> None:
    """An unforeseen error is called a defect, and the operator is told its place."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, said: told.append(said))
    gate = Gate(tmp_path)
    gate.places.problem = problem
    await gate.settle()
    [ended] = gate.reports
    assert (ended.session, ended.run_id, gate.runner.started) == ("id", "id.1", [])
    assert (
        ended.problem is not None
        and ended.problem.startswith("its workspace could not be made: ")
        and str(problem) in ended.problem
    )
    assert ("a defect of wakeful" in ended.problem) == isinstance(problem, RuntimeError) == bool(told)


async def test_when_the_daemon_stops_nothing_that_was_being_prepared_begins(tmp_path: Path) -> None:
    """The daemon does not wait for the preparation or report it.
    The next daemon finds a lost run and sweeps its folder."""
    gate = Gate(tmp_path)
    await gate.settle()
    async with asyncio.timeout(60):
        await gate.starter.stop_preparing()
    assert (gate.reports, gate.runner.started) == ([], [])


async def test_a_workspace_that_is_being_filled_is_given_up_at_the_next_file(tmp_path: Path) -> None:
    """A thread cannot be ended, so the end of the daemon would wait for it."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_text("a")
    places = RunPlaces(str(tmp_path / "state"), str(tmp_path / "staged"), Checkouts())
    places.close()
    spec = SessionSpec(
        name="s",
        root=str(root),
        bindings=(FileBinding(name="a", pattern="a"),),
        run=ScriptRun(text="true", workspace="copy"),
    )
    with pytest.raises(CallerError, match="the daemon stops"):
        await places.make(spec, "id.1")


class Quick:
    """A session without a workspace, with its secret in a file and the real code that makes its order."""

    def __init__(self, folder: Path, read_received: ReadReceived = lambda session, run: []) -> None:
        self.secret = folder / "secrets" / "key"
        self.secret.parent.mkdir(0o700)
        self.keep("first of all")
        spec = SessionSpec(name="s", root=str(folder), bindings=(), run=ScriptRun(text="true"), secrets=("key",))
        self.run = OpenRun(
            run=1, run_id="id.1", wake=1, attempt=0, incarnation="i", started_at=AT, versions={}, causes=(), spec=spec
        )
        self.session = Session(id="id", name="s", opened_at=AT, spec=spec, run=self.run)
        self.runner = Orders()
        self.reports: list[ProcessEnded] = []
        known = KnownSecrets(SecretPlaces(str(self.secret.parent)), lambda seen: None, lambda: ["key"])
        locations = RunLocations(
            scratch=f"{folder}/scratch",
            temporary=f"{folder}/temporary",
            run_folders=f"{folder}/runs",
            socket="/no/socket",
        )
        places = RunPlaces(str(folder / "state"), str(folder / "staged"), Checkouts())
        keeper = cast(Any, SimpleNamespace(save_outputs=lambda *_: None, begin=lambda *_: None))
        self.starter = RunStarter(
            Core([self.session]), cast(Any, SimpleNamespace(peek=None, find=None)), cast(Any, self.runner), partial(make_order, locations=locations), lambda session: None, str(folder / "runs"),
            self.reports.append, keeper, known, lambda name: None, places, read_received=read_received,
        )  # fmt: skip

    def keep(self, value: str) -> None:
        self.secret.write_text(value)
        self.secret.chmod(0o600)


async def test_a_start_has_the_very_order_that_was_prepared(tmp_path: Path) -> None:
    gate = Quick(tmp_path)
    gate.starter.prepare(gate.session, gate.run)
    [order] = gate.runner.prepared
    assert gate.starter.identity(order.token) is None, "nothing has begun"
    gate.starter.start(gate.session, gate.run)
    assert gate.runner.started[0] is order and gate.starter.identity(order.token) is not None


async def test_a_secret_that_was_replaced_while_the_start_was_recorded_is_the_new_one(tmp_path: Path) -> None:
    gate = Quick(tmp_path)
    gate.starter.prepare(gate.session, gate.run)
    gate.keep("second to none")
    gate.starter.start(gate.session, gate.run)
    assert [secret.value for secret in gate.runner.started[0].secrets] == [b"second to none"]


async def test_a_secret_that_is_gone_is_told_by_the_start_and_not_before(tmp_path: Path) -> None:
    gate = Quick(tmp_path)
    gate.secret.unlink()
    gate.starter.prepare(gate.session, gate.run)
    assert (gate.runner.prepared, gate.reports) == ([], [])
    gate.starter.start(gate.session, gate.run)
    await asyncio.sleep(0)
    assert gate.runner.started == [] and "key" in str(gate.reports[0].problem)


async def test_whatever_fails_while_a_start_is_being_recorded_is_told_by_the_start(tmp_path: Path) -> None:
    """The reactor prepares in the middle of a decision. An error there would end the daemon with all its sessions."""
    asyncio.get_running_loop().set_exception_handler(lambda _, said: None)

    def fail(session: Session, run: OpenRun) -> list[Any]:
        raise RuntimeError("half a record")

    gate = Quick(tmp_path, fail)
    gate.starter.prepare(gate.session, gate.run)
    assert (gate.runner.prepared, gate.reports) == ([], [])
    gate.starter.start(gate.session, gate.run)
    await asyncio.sleep(0)
    assert gate.runner.started == [] and "half a record" in str(gate.reports[0].problem)
