"""A bundle from a stranger is shown when it is loaded. Nothing of it runs before a person trusts it.

At the end, each attack succeeds after a person has trusted what was loaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.box import Box
from wait_conditions import eventually


class Host(Box):
    def reach(self) -> str:
        """Return no settings: the specs alone say which files their sessions may write."""
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
    """Declare a session whose probe and run each leave a file.

    It is disabled at the stranger's daemon, so nothing runs there.
    """
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
    # Put the session to sleep first: it must not run here when its spec is enabled.
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
    # A fork of the session needs trust, too.
    home.ask("fork", "helper", "--as", "copy")
    assert "needs trust" in home.run("activate", "copy").stderr
    home.stop()
    home.start()
    assert "needs trust" in home.row("helper")["reason"] and "needs trust" in home.row("copy")["reason"]
    assert {one["name"] for one in home.json("trust")["waiting"]} == {"helper", "copy"}
    assert list(canaries.iterdir()) == []

    # Without a person to answer, the session sleeps on. Once it is trusted, its probe and its run leave their files.
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
        asked.returncode == 1 and "cannot ask without a terminal" in asked.stderr and "evil.example:443" in asked.stdout
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
    """The session would use the programs and keys of this host's agent. A person trusts it with them."""
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
    """A spec that moves in needs trust. A spec that returns to the host where it was in force does not."""
    start_counting(home)
    home.ask("migrate", "count", "--to", "away.bundle")
    stranger.start()
    arrived = stranger.json("load", "--move", str(home.folder / "away.bundle"))
    assert "its spec came in a bundle" in arrived["needs_trust"] and arrived["spec"]["runs"][0] == "sh"
    assert "needs trust" in stranger.run("activate", "count").stderr
    # Runs that happened on another host are not replayed here. A fork of its past needs trust, too.
    assert "needs trust" in stranger.run("replay", "count", "1").stderr
    stranger.ask("fork", "count", "--at", "3", "--as", "past")
    assert "needs trust" in stranger.row("past")["reason"]
    stranger.stop()
    stranger.start()
    assert "needs trust" in stranger.row("count")["reason"]
    # The session returns, still untrusted on the other host, before the receipt has come.
    stranger.ask("migrate", "count", "--to", "home.bundle")
    back = home.json("load", "--move", str(stranger.folder / "home.bundle"))
    assert back["needs_trust"] is None
    home.ask("activate", "count", "--wait")
    assert home.row("count")["last_run"]["outcome"] == "succeeded"


def test_a_session_that_comes_home_with_another_spec_is_looked_at(home: Host, stranger: Host, tmp_path: Path) -> None:
    """The log begins with our records, but records with another spec were added to it elsewhere."""
    start_counting(home)
    home.ask("migrate", "count", "--to", "away.bundle")
    stranger.start()
    stranger.ask("load", "--move", str(home.folder / "away.bundle"), "--trust", "--yes")
    stranger.spec("count", COUNTING.replace("wc -l < in.txt", "echo gotcha"))
    eventually(lambda: "gotcha" in json.dumps(stranger.log("count")), what="the other spec")
    stranger.ask("migrate", "count", "--to", "home.bundle")
    # The person's own file would replace the spec that came.
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
    """A bundle saved here needs no trust here: our log has the hash of its last record. Elsewhere it needs trust."""
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
    # A session that was archived here is loaded without new trust.
    home.ask("archive", "count")
    home.ask("load", "count")
    home.ask("activate", "count", "--wait")
    assert home.row("count")["last_run"]["outcome"] == "succeeded"
