"""A trace gives a run no further rights.

A traced run keeps its limits, no line is offered that opens a key, and no secret is recorded.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from security.conftest import Attack
from wait_conditions import eventually
from wakeful.runners.isolation.trace import find_obstacle
from wakeful.secrets.store import save_secret

OBSTACLE = find_obstacle()
# Run by `make test-long`, because each test starts a daemon, which takes long.
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(OBSTACLE is not None, reason=f"nothing can be traced here: {OBSTACLE}"),
]
CANARY = "cnry-7QfR2x9ZkL0vw4TnB8s"
KNOWING = """
objective: Log in somewhere.
secrets: [canary]
bindings: {in: {file: in.txt}}
run: {script: 'mkdir "/opt/$(cat "$WAKEFUL_SECRET_CANARY")" || cat "/opt/$(cat "$WAKEFUL_SECRET_CANARY")"', retries: 0}
"""


def trace(attack: Attack, name: str) -> dict[str, Any]:
    done = attack.run("trace", name, "--json")
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_a_fooled_program_that_is_traced_reaches_no_more_and_gets_no_help(attack: Attack) -> None:
    """The program asks for a key, and reads it without isolation.

    Traced, it is denied and reported. No line that opens the key is offered.
    """
    key = attack.home / ".ssh" / "id_ed25519"
    attack.carry_out(do="read", path=str(key))
    assert "PRIVATE KEY" in attack.told("open")
    report = trace(attack, "shut")
    assert report["outcome"] == "failed" and report["lines"] == []
    asked = {one["what"]: one for one in report["denied"]}
    assert asked[str(key)]["place"] is None and "secrets" in asked[str(key)]["words"]
    assert "PRIVATE KEY" not in attack.told("shut") and attack.row("shut")["runs"] == 2


def test_a_run_cannot_have_itself_traced_without_its_isolation(attack: Attack) -> None:
    """A run's own token opens no trace, although the operator's setting allows unisolated runs here."""
    attack.carry_out(do="call_as_itself", target="/call/trace", body={"observe": True})
    for name in ("open", "shut"):
        assert attack.outcome(name) == "failed" and "403" in attack.told(name)
        assert not [record for record in attack.log(name) if record["kind"] == "activation_requested"], attack.told(
            name
        )


def test_a_secret_in_a_path_is_not_recorded(attack: Attack) -> None:
    """A path that holds the secret's value is reported with the secret's name instead."""
    (attack.project / "in.txt").write_text("1")
    folder = attack.home / ".config" / "wakeful" / "secrets"
    folder.mkdir(parents=True, mode=0o700)
    save_secret(str(folder), "canary", CANARY.encode())
    attack.start()
    attack.spec_raw("knows", KNOWING)
    attack.settle("knows")
    report = trace(attack, "knows")
    assert [one["access"] for one in report["denied"]] == ["write"] and report["lines"] == []
    assert "canary" in report["denied"][0]["what"] and CANARY not in json.dumps(report)
    for path in sorted(attack.state.rglob("*")):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes(), path


def test_what_an_observed_run_changes_of_the_specs_needs_trust(attack: Attack) -> None:
    """An observed run is denied nothing.

    So a spec that it could have written needs trust, whatever isolation the run's spec has.
    """
    attack.declare("writer", "standard", do="write", path=str(attack.specs / "evil.yaml"), text="objective: x\n")
    attack.start()
    attack.settle("writer")
    assert attack.outcome("writer") == "failed" and not (attack.specs / "evil.yaml").exists()
    done = attack.run("trace", "writer", "--observe", "--json")
    assert json.loads(done.stdout)["outcome"] == "succeeded" and (attack.specs / "evil.yaml").exists()
    row = eventually(lambda: next((row for row in attack.rows() if row["name"] == "evil"), None))
    assert "needs trust" in row["reason"]
