"""Probes that are really started: confined as the runs of their session are, and without leftovers."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from runners.conftest import Bench
from wait_conditions import eventually_async
from wakeful.core.looking.targets import ProbeTarget
from wakeful.core.spec.session import Confinement
from wakeful.errors import OperatorError
from wakeful.runners.isolation.bubblewrap import find_obstacle
from wakeful.runners.run.probe_launch import ProbePlaces
from wakeful.secrets.known_secrets import KnownSecrets
from wakeful.secrets.store import SecretPlaces, save_secret

OBSTACLE = find_obstacle()
pytestmark = pytest.mark.asyncio
LEVELS = [
    "standard",
    pytest.param(
        "strict", marks=pytest.mark.skipif(OBSTACLE is not None, reason=f"no strict isolation here: {OBSTACLE}")
    ),
]


def probe(bench: Bench, text: str, level: str = "standard", **changes: object) -> ProbeTarget:
    confinement = Confinement(level=level, **changes.pop("confinement", {}))
    values = dict(
        key="p",
        root=str(bench.root),
        argv=("sh", "-c", text),
        check_every_seconds=1.0,
        timeout_seconds=60.0,
        confinement=confinement,
    )
    return ProbeTarget(**(values | changes))


def places_of(bench: Bench) -> ProbePlaces:
    return ProbePlaces(str(bench.state / "temporary"), str(bench.state / "runs"))


async def ask(bench: Bench, target: ProbeTarget) -> tuple[int, str, str]:
    """Run the probe, and return its exit code and its outputs."""
    async with bench.runner.launch_probe(target, places_of(bench)) as popen:
        out, err = popen.communicate(timeout=60)
    return popen.returncode, out.decode(), err.decode()


@pytest.mark.parametrize("level", LEVELS)
async def test_a_probe_reads_what_is_bound_and_what_is_named_and_writes_its_temporary_folder_alone(
    bench: Bench, level: str
) -> None:
    for name in ("bound", "secret", "written"):
        (bench.root / name).write_text(name)
    target = probe(bench, "cat bound written; echo x > $TMPDIR/x && cat $TMPDIR/x", level, reads=("bound", "written"))
    assert await ask(bench, target) == (0, "boundwrittenx\n", "")
    # The name is not written out, so that the command does not name the file.
    code, out, _ = await ask(bench, probe(bench, "f=sec; cat ${f}ret", level))
    assert (code, out) == (1, "")
    assert (await ask(bench, probe(bench, "f=sec; cat ${f}ret", "none")))[:2] == (0, "secret")
    code, *_ = await ask(bench, probe(bench, "echo changed > bound", level, reads=("bound",)))
    assert code != 0 and (bench.root / "bound").read_text() == "bound"
    assert (await ask(bench, probe(bench, "echo changed > bound", "none")))[0] == 0


@pytest.mark.parametrize("level", LEVELS)
async def test_what_allow_adds_counts_for_a_probe_too(bench: Bench, level: str) -> None:
    (bench.root / "other").write_text("other")
    target = probe(bench, "f=oth; cat ${f}er", level, confinement={"allow_read": ("other",)})
    assert await ask(bench, target) == (0, "other", "")


async def test_a_probe_has_no_network_unless_its_session_has(bench: Bench) -> None:
    connect = "python3 -c 'import socket; socket.create_server((\"127.0.0.1\", 0)); print(1)'"
    assert (await ask(bench, probe(bench, connect)))[0] == 1
    assert await ask(bench, probe(bench, connect, confinement={"network": True})) == (0, "1\n", "")


async def test_what_was_made_for_a_probe_goes_with_it(bench: Bench) -> None:
    """This holds also if the probe could not be started."""
    async with bench.runner.launch_probe(probe(bench, "exec sleep 300"), places_of(bench)) as popen:
        assert [len(os.listdir(place)) for place in places_of(bench)] == [1, 1]
        # `tidy` takes the probe neither for a stray process nor for a run.
        bench.runner.tidy()
        assert popen.poll() is None
        popen.kill()
        popen.communicate(timeout=60)
    with pytest.raises(FileNotFoundError):
        await ask(bench, probe(bench, "", argv=("no-such-program",)))
    assert [os.listdir(place) for place in places_of(bench)] == [[], []]


async def test_what_leaves_the_group_of_a_probe_does_not_outlive_it(bench: Bench) -> None:
    """While the process lives, the runner knows that it belongs to the probe."""
    text = "setsid sh -c 'echo $$; exec >&- 2>&-; exec sleep 300' & wait $!"
    async with bench.runner.launch_probe(probe(bench, text), places_of(bench)) as popen:
        assert popen.stdout is not None
        pid = int(await asyncio.to_thread(popen.stdout.readline))
        owner = bench.runner.owner(pid)
        assert owner is not None and (owner.run_id or "").startswith("probe-")
        popen.kill()
        popen.communicate(timeout=60)
    await eventually_async(lambda: not bench.is_alive(pid))


@pytest.mark.parametrize("level", LEVELS)
async def test_the_environment_is_an_allow_list_and_names_no_run(
    tmp_path: Path, subreaper: None, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """The probe gets no variable that systemd or a person gave to the daemon alone, and none that lets it act as a
    run.
    """
    for name in (
        "NOTIFY_SOCKET",
        "LISTEN_FDS",
        "CREDENTIALS_DIRECTORY",
        "WATCHDOG_USEC",
        "INVOCATION_ID",
        "JOURNAL_STREAM",
        "API_KEY",
    ):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("TZ", "UTC")
    secrets = SecretPlaces(folder=str(tmp_path / "secrets"), credentials=None)
    save_secret(secrets.folder, "db", b"the value")
    bench = Bench(tmp_path, secrets=KnownSecrets(secrets, lambda seen: None, lambda: ()))
    try:
        code, out, _ = await ask(bench, probe(bench, 'cat "$WAKEFUL_SECRET_DB"; echo; env', level, secrets=("db",)))
        value, *lines = out.splitlines()
        assert (code, value) == (0, "the value")
        seen = {line.partition("=")[0] for line in lines} - {"PWD", "OLDPWD", "SHLVL", "_"}
        assert seen <= {
            "PATH",
            "HOME",
            "LANG",
            "TZ",
            "USER",
            "LOGNAME",
            "SHELL",
            "LC_TIME",
            "LC_ALL",
            "TMPDIR",
            "GIT_CONFIG_GLOBAL",
            "WAKEFUL_SECRET_DB",
        }
        assert {"PATH", "HOME", "TZ", "LC_TIME", "TMPDIR", "WAKEFUL_SECRET_DB"} <= seen
        with pytest.raises(OperatorError, match="needs a secret: other"):
            await ask(bench, probe(bench, "true", secrets=("other",)))
    finally:
        await bench.runner.close(0)
    with pytest.raises(OperatorError, match="stopping"):
        await ask(bench, probe(bench, "true"))
