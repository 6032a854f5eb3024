"""The reach of an attached project's programs is pinned with the project.

A helper that leads elsewhere needs trust before anything runs.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ordinary_user import OrdinaryBox, OrdinaryUser
from wait_conditions import eventually

SPEC = """
objective: Try to read the key.
bindings: {{data: {{file: data.txt}}}}
first: run
run: {{command: [sh, p.sh], retries: 0}}
"""


class PinnedBox(OrdinaryBox):
    """A daemon with an attached and trusted project of a stranger, which lies beside the daemon's own folder."""

    def __init__(self, folder: Path, user: OrdinaryUser) -> None:
        super().__init__(folder, user)
        self.project = folder / "shop"
        (user.home / ".ssh").mkdir()
        (user.home / ".ssh/id_ed25519").write_text("PRIVATE KEY")
        self.put("sessions.d/s.yaml", SPEC.format())
        self.put("p.sh", f"cat {user.home}/.ssh/id_ed25519 2>&1; cat v/notes.txt 2>&1 || true\n# ./tools/e.sh\n")
        # The spec does not declare this part of the project.
        self.put("v/notes.txt", "PRIVATE NOTES")
        self.put("tools/e.sh", "#!/bin/sh\n", 0o755)
        self.put("data.txt", "1")

    def put(self, path: str, text: str, mode: int = 0o644) -> None:
        target = self.project / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(textwrap.dedent(text))
        target.chmod(mode)

    def attach(self) -> str:
        self.user.give(self.user.home)
        self.start()
        said = self.ask("add", str(self.project), "--yes")
        eventually(lambda: any(row["name"] == "shop/s" for row in self.rows()), what="shop/s declared")
        self.wait_at_rest("shop/s", runs=1)
        return said

    def plant(self) -> None:
        """Replace the helper by a link into an environment whose .pth file names the home and /home."""
        with self.user.acting():
            self.put("v/pyvenv.cfg", "home = /usr/bin\n")
            self.put("v/bin/tool", "#!/bin/sh\n", 0o755)
            self.put("v/lib/python3.11/site-packages/x.pth", f"{self.user.home}\n/home\n")
            os.unlink(self.project / "tools/e.sh")
            os.symlink("../v/bin/tool", self.project / "tools/e.sh")

    def wait_untrusted(self) -> dict[str, Any]:
        def find() -> dict[str, Any] | None:
            row = self.row("shop/s")
            return row if row["state"] == "sleeping" and "needs trust" in (row["reason"] or "") else None

        return eventually(find, what="shop/s needs trust")


@pytest.fixture
def pinned(tmp_path: Path, ordinary_user: OrdinaryUser) -> Iterator[PinnedBox]:
    folder = tmp_path / "box"
    folder.mkdir()
    made = PinnedBox(folder, ordinary_user)
    yield made
    made.close()


def test_a_helper_that_leads_elsewhere_needs_trust(pinned: PinnedBox) -> None:
    """The changed reach is noticed without a run, shown with the project, and trusted as shown.

    The key stays out of reach even then.
    """
    said = pinned.attach()
    assert "its programs also reach: tools/e.sh" in said
    pinned.plant()
    row = pinned.wait_untrusted()
    assert "its programs reach more: v" in row["reason"]
    shown = pinned.run("trust", "shop/s")
    assert (
        "what its programs reach: v: new" in shown.stdout and "what its programs reach: tools/e.sh" not in shown.stdout
    )
    assert pinned.run("activate", "shop/s").returncode == 1
    pinned.ask("trust", "shop/s", "--yes")
    with pinned.user.acting():
        (pinned.project / "data.txt").write_text("2")
    pinned.wait_at_rest("shop/s", runs=2)
    assert "PRIVATE KEY" not in pinned.run("output", "shop/s").stdout
    finished = [record["payload"] for record in pinned.log("shop/s") if record["kind"] == "run_finished"][-1]
    assert finished["isolation"]["derived"] == ["v"]
    assert any("x.pth" in words for words in finished["isolation"]["not_derived"])
    assert "its programs also reached v" in pinned.words("show", "shop/s")


@pytest.mark.parametrize("is_defended", [True, pytest.param(False, marks=pytest.mark.long)])
def test_what_is_planted_just_before_a_run_is_found_by_the_run(pinned: PinnedBox, is_defended: bool) -> None:
    """The helper and the input change together: the run does not start, and the session sleeps.

    Without the pin it runs, and reads more than before.
    """
    if not is_defended:
        pinned.weaken("pin_no_reach")
    pinned.attach()
    assert "PRIVATE" not in pinned.run("output", "shop/s").stdout
    with pinned.held_still():
        pinned.plant()
        with pinned.user.acting():
            (pinned.project / "data.txt").write_text("2")
    if not is_defended:
        row = pinned.wait_at_rest("shop/s", runs=2)
        assert row["state"] == "suspended" and "PRIVATE NOTES" in pinned.run("output", "shop/s").stdout
        assert "as it was trusted" in pinned.run("trust", "shop/s").stdout
        return
    pinned.wait_untrusted()
    assert "PRIVATE" not in pinned.run("output", "shop/s").stdout
    outputs = [
        record
        for record in pinned.log("shop/s")
        if record["kind"] == "run_finished" and record["payload"].get("isolation")
    ]
    assert len(outputs) == 1
