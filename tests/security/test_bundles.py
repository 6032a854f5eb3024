"""A stranger's bundle is a stranger's spec: it is shown when it is loaded, and nothing of it runs before a person has trusted it.

Each attack is let through at the end, by trusting what was loaded: then it does what it was made for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.box import Box
from waiting import eventually


class Host(Box):
    def reach(self) -> str:
        """What sessions here may write stands in their specs, as it must for strangers."""
        return ""


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "stranger")
    yield made
    made.close()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "home")
    yield made
    made.close()


def declare_evil(host: Host, canaries: Path) -> None:
    """Its probe and its run each leave a file. There is nothing to be woken by at the stranger's, so nothing runs there."""
    canaries.mkdir()
    host.spec(
        "helper",
        f"""
        objective: Help.
        enabled: false
        allow: {{read: [/etc/hostname], write: [{json.dumps(str(canaries))}]}}
        network: ["evil.example:443"]
        bindings:
          p: {{probe: [touch, {json.dumps(str(canaries / "probe"))}], check_every: 1s}}
        run: {{script: 'touch {canaries}/run', env: {{LD_PRELOAD: evil.so}}, retries: 0}}
        """,
    )


def test_nothing_of_a_strangers_bundle_runs_before_it_is_trusted(stranger: Host, home: Host, tmp_path: Path) -> None:
    canaries = tmp_path / "canaries"
    declare_evil(stranger, canaries)
    stranger.start()
    # Declared as it is to be loaded; no reading of it comes before that of the bundle.
    stranger.ask("sleep", "helper")
    stranger.stop()
    spec = stranger.specs / "helper.yaml"
    spec.write_text(spec.read_text().replace("        enabled: false\n", "").replace("enabled: false\n", ""))
    stranger.start()
    stranger.ask("save", "helper", "-o", "helper.bundle")
    stranger.stop()
    for one in canaries.iterdir():
        one.unlink()

    home.start()
    shown = home.ask("load", str(stranger.folder / "helper.bundle"), "--root", str(home.folder))
    for words in (
        "touch",
        "evil.example:443",
        "/etc/hostname",
        str(canaries),
        "probes:",
        "needs trust: its spec came in a bundle",
        "wakeful trust helper",
    ):
        assert words in shown, shown
    assert "needs trust" in home.row("helper")["reason"] and home.row("helper")["state"] == "sleeping"
    refused = home.run("activate", "helper")
    assert refused.returncode == 1 and "needs trust" in refused.stderr
    home.ask("send", "helper", "hello")
    home.run("resume", "helper")
    # A fork of it is no way round.
    home.ask("fork", "helper", "--as", "copy")
    assert "needs trust" in home.run("activate", "copy").stderr
    home.stop()
    home.start()
    assert "needs trust" in home.row("helper")["reason"] and "needs trust" in home.row("copy")["reason"]
    assert {one["name"] for one in home.json("trust")["waiting"]} == {"helper", "copy"}
    assert list(canaries.iterdir()) == []

    # Nobody is there to answer: it sleeps on. Looked at and trusted, it does what it was made for.
    asked = home.run("trust", "helper")
    assert asked.returncode == 1 and "LD_PRELOAD" in asked.stdout
    home.ask("trust", "helper", "--yes")
    eventually(lambda: (canaries / "probe").exists(), what="the probe, trusted")
    home.ask("activate", "helper", "--wait")
    assert (canaries / "run").exists()
    assert "needs trust" in home.row("copy")["reason"]


def test_what_is_shown_is_what_is_trusted_and_load_can_ask_at_once(stranger: Host, home: Host, tmp_path: Path) -> None:
    declare_evil(stranger, tmp_path / "canaries")
    stranger.start()
    stranger.ask("save", "helper", "-o", "helper.bundle")
    home.start()
    bundle = str(stranger.folder / "helper.bundle")
    asked = home.run("load", bundle, "--as", "one", "--trust")
    assert (
        asked.returncode == 1 and "nobody is there to be asked" in asked.stderr and "evil.example:443" in asked.stdout
    )
    assert "needs trust" in home.row("one")["reason"]
    assert "trusted" in home.ask("load", bundle, "--as", "two", "--trust", "--yes")
    assert "needs trust" not in home.row("two")["reason"]
    loaded = home.json("load", bundle, "--as", "three", "--trust", "--yes")
    assert loaded["needs_trust"] is None and loaded["spec"]["network"] == ["evil.example:443"]
    trusted = [record for record in home.log("three") if record["kind"] == "spec_trusted"]
    assert [record["author"].partition(":")[0] for record in trusted] == ["person"]


def test_the_agent_that_a_loaded_session_would_have_here_is_shown_before_it_is_trusted(
    stranger: Host, home: Host
) -> None:
    """Its programs and keys are those of this host: a person trusts the session with them."""
    for host in (stranger, home):
        host.write("sessions.d/agents/hr.yaml", f"prompt: Help.\nmodel: openai:{host.folder.name}\n")
    stranger.spec("helper", "objective: Help.\nagent: hr\nrun: {prompt: Help.}\nenabled: false\n")
    stranger.start()
    stranger.ask("save", "helper", "-o", "helper.bundle")
    home.start()
    home.ask("load", str(stranger.folder / "helper.bundle"), "--root", str(home.folder))
    assert home.json("trust", "helper")["agent"]["models"] == [f"openai:{home.folder.name}"]


COUNTING = """
    objective: Count the lines.
    bindings: {input: {file: in.txt, settle: 10ms}, out: {file: out/n.txt, access: write}}
    run: {command: [sh, -c, 'wc -l < in.txt > out/n.txt'], retries: 0}
"""


def start_counting(host: Host) -> None:
    host.write("in.txt", "1\n")
    host.spec("count", COUNTING)
    host.start()
    host.wait_at_rest("count", runs=1)


def test_a_session_that_moves_in_is_trusted_first_and_one_that_comes_home_needs_nobody(
    home: Host, stranger: Host
) -> None:
    """There its spec is a stranger's; back here it is the one that was in force here."""
    start_counting(home)
    home.ask("migrate", "count", "--to", "away.bundle")
    stranger.start()
    arrived = stranger.json("load", "--move", str(home.folder / "away.bundle"))
    assert "its spec came in a bundle" in arrived["needs_trust"] and arrived["spec"]["runs"][0] == "sh"
    assert "needs trust" in stranger.run("activate", "count").stderr
    # Its runs happened elsewhere, and are not repeated here; nor is a fork of its past a way round.
    assert "needs trust" in stranger.run("replay", "count", "1").stderr
    stranger.ask("fork", "count", "--at", "3", "--as", "past")
    assert "needs trust" in stranger.row("past")["reason"]
    stranger.stop()
    stranger.start()
    assert "needs trust" in stranger.row("count")["reason"]
    # It goes home unseen by anybody there, before its receipt came.
    stranger.ask("migrate", "count", "--to", "home.bundle")
    back = home.json("load", "--move", str(stranger.folder / "home.bundle"))
    assert back["needs_trust"] is None
    home.ask("activate", "count", "--wait")
    assert home.row("count")["last_run"]["outcome"] == "succeeded"


def test_a_session_that_comes_home_with_another_spec_is_looked_at(home: Host, stranger: Host, tmp_path: Path) -> None:
    """The chain of its records begins with ours: that says nothing of what was added to it."""
    start_counting(home)
    home.ask("migrate", "count", "--to", "away.bundle")
    stranger.start()
    stranger.ask("load", "--move", str(home.folder / "away.bundle"), "--trust", "--yes")
    stranger.spec("count", COUNTING.replace("wc -l < in.txt", "echo gotcha"))
    eventually(lambda: "gotcha" in json.dumps(stranger.log("count")), what="the other spec")
    stranger.ask("migrate", "count", "--to", "home.bundle")
    # The person's own file would take the place of what came.
    home.stop()
    (home.specs / "count.yaml").unlink()
    home.start()
    back = home.json("load", "--move", str(stranger.folder / "home.bundle"))
    assert "its spec came in a bundle" in back["needs_trust"]
    assert "needs trust" in home.run("activate", "count").stderr
    home.spec("count", COUNTING)
    eventually(lambda: "needs trust" not in home.row("count")["reason"], what="the person's own file counts")
    home.ask("activate", "count", "--wait")
    assert (home.folder / "out" / "n.txt").read_text().strip() == "1"


def test_a_bundle_that_was_saved_here_is_ones_own(home: Host, stranger: Host) -> None:
    """Its own log says so, by the hash of the last record. The same bundle is a stranger's elsewhere."""
    start_counting(home)
    home.ask("save", "count", "-o", "count.bundle")
    project = home.folder / "project"
    project.mkdir()
    (project / "in.txt").write_text("1\n2\n")
    loaded = home.json("load", str(home.folder / "count.bundle"), "--as", "trial", "--root", str(project))
    assert loaded["needs_trust"] is None
    home.ask("activate", "trial", "--wait")
    assert (project / "out" / "n.txt").read_text().strip() == "2"
    stranger.start()
    assert stranger.json("load", str(home.folder / "count.bundle"))["needs_trust"] is not None
    # What was archived here comes back as it was.
    home.ask("archive", "count")
    home.ask("load", "count")
    home.ask("activate", "count", "--wait")
    assert home.row("count")["last_run"]["outcome"] == "succeeded"
