"""Canaries: a run says its secret in every way it can, and nothing that lasts holds it. Each test shows that it would, undefended."""

from __future__ import annotations

import base64
import gzip
import html
import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from e2e.box import WAKEFUL, Box
from waiting import eventually

from wakeful.secrets.store import save_secret

LEAK = Path(__file__).with_name("leak.py")
CANARY = "cnry-7Qf/R2+x9Zk=L0v&w4T'nB8<s>"
ROTATED = "cnry-second/Value+9Xy=M1w&e5U'oC9<t>"
SECRET = """
objective: Log in somewhere.
secrets: [canary]
bindings: {in: {file: in.txt}, out: {file: out/result.txt, access: write}}
run: {script: 'exec python3 leak.py "$WAKEFUL_SECRET_CANARY"', retries: 0}
"""
# The same program and the same value, which is not known to be a secret.
OPEN = """
objective: Log in somewhere.
bindings: {value: {file: value.txt}, out: {file: out/result.txt, access: write}}
run: {command: [python3, leak.py, value.txt], retries: 0}
"""


def spell(value: str) -> dict[str, bytes]:
    """As `leak.py` says it, and nobody asked how we look for it."""
    raw = value.encode()
    return {
        "raw": raw,
        "base64": base64.b64encode(raw)[:-4],
        "base64 after user:": base64.b64encode(b"user:" + raw)[8:-4],
        "base64 for addresses": base64.urlsafe_b64encode(b"x" + raw + b"\n")[4:-4],
        "hexadecimal": raw.hex().encode(),
        "quoted": quote(raw, safe="").encode(),
        "JSON": json.dumps(value)[1:-1].encode(),
        "HTML": html.escape(value).encode(),
        "repr": repr(raw)[2:-1].encode(),
        # No more than this of a value may be left over anywhere.
        "its first half": raw[: len(raw) // 2],
        "its last half": raw[len(raw) // 2 :],
    }


def find_canaries(data: bytes, value: str) -> list[str]:
    found = [name for name, shape in spell(value).items() if shape in data]
    # JSON inside of JSON, and what a bundle holds of blobs.
    plain = data.replace(b"\\\\", b"\\").replace(b'\\"', b'"')
    inner = b"\n".join(_decode(text) for text in re.findall(rb'"([A-Za-z0-9+/]{16,}={0,2})"', data))
    return found + [f"{name}, inside" for name, shape in spell(value).items() if shape in inner or shape in plain]


def _decode(text: bytes) -> bytes:
    try:
        return base64.b64decode(text)
    except ValueError:
        return b""


def read_surfaces(box: Box, session: str) -> dict[str, bytes]:
    """Everything durable, and everything that tells of it."""
    asked = {
        "log": ("log", session, "--json"),
        "history": ("history", session),
        "output": ("output", session),
        "export": ("export",),
        "show": ("show", session, "--json"),
        "facts": ("facts", session, "--json"),
        "why": ("why", session),
        "search": ("search", "shape OR token OR look OR secret"),
        "list": ("list", "--json"),
        "doctor": ("doctor", "--json"),
    }
    surfaces = {name: (done := box.run(*words)).stdout.encode() + done.stderr.encode() for name, words in asked.items()}
    box.ask("save", session, "-o", "saved.wakeful")
    surfaces["bundle"] = gzip.decompress((box.folder / "saved.wakeful").read_bytes())
    box.ask("backup", "log.backup", "--state", str(box.state))
    surfaces["backup"] = (box.folder / "log.backup").read_bytes()
    # The log as it is while the daemon lives, with its write-ahead log; then as it is left.
    surfaces |= read_state(box, "live")
    box.stop()
    surfaces |= read_state(box, "left")
    surfaces["foreground"] = box.output.read_bytes()
    return surfaces


def read_state(box: Box, when: str) -> dict[str, bytes]:
    """What a run puts in its own scratch folder is its own."""
    files = [path for path in box.state.rglob("*") if path.is_file() and "scratch" not in path.relative_to(box.state).parts]
    groups: dict[str, bytes] = {}
    for path in files:
        kind = f"{when} {path.relative_to(box.state).parts[0]}"
        groups[kind] = groups.get(kind, b"") + path.read_bytes() + b"\n"
    return groups


class SecretBox(Box):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.config = folder / "config"
        shutil.copy(LEAK, folder / "leak.py")
        self.write("in.txt", "1")
        (folder / "out").mkdir()

    def environment(self) -> dict[str, str]:
        return super().environment() | {"XDG_CONFIG_HOME": str(self.config)}

    def set_secret(self, name: str, value: str) -> None:
        done = subprocess.run([WAKEFUL, "secret", "set", name], input=value.encode(), env=self.environment(), capture_output=True, timeout=30)
        assert done.returncode == 0, done.stderr
        assert not find_canaries(done.stdout + done.stderr, value)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[SecretBox]:
    made = SecretBox(tmp_path)
    yield made
    made.close()


def test_a_secret_that_a_run_says_in_every_way_is_nowhere_afterwards(box: SecretBox) -> None:
    """The database, its write-ahead log, blobs, backup, bundle, foreground, and every verb that shows any of it."""
    box.set_secret("canary", CANARY)
    box.spec("leaky", SECRET)
    box.start()
    box.wait_at_rest("leaky", runs=1)
    # What a person types is taken out, too; also as the key of a call and in the causes of an activation.
    box.ask("send", "leaky", f"is it {CANARY}?", "--no-wake")
    box.ask("note", "leaky", f"it is {base64.b64encode(CANARY.encode()).decode()}")
    finished = next(record["payload"] for record in box.log("leaky") if record["kind"] == "run_finished")
    assert finished["exit_code"] == 1
    output = box.ask("output", "leaky")
    assert output.count("[secret canary]") >= 12 and "could not log in with [secret canary]" in output
    assert "[secret canary]" in box.ask("facts", "leaky") and "is it [secret canary]?" in box.ask("log", "leaky", "--json")
    # It did write it where it may.
    assert CANARY in box.read("out/result.txt")
    surfaces = read_surfaces(box, "leaky")
    found = {name: canaries for name, data in surfaces.items() if (canaries := find_canaries(data, CANARY))}
    assert not found
    # Nothing of the run's own folder is left either.
    assert not [path for path in box.runtime.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]


def test_the_same_program_would_have_told_it_everywhere(box: SecretBox) -> None:
    """The proof that the search finds what is there: the value is not known as a secret."""
    box.write("value.txt", CANARY)
    box.spec("leaky", OPEN)
    box.start()
    box.wait_at_rest("leaky", runs=1)
    surfaces = read_surfaces(box, "leaky")
    found = {name: find_canaries(data, CANARY) for name, data in surfaces.items()}
    for surface in ("log", "output", "export", "facts", "bundle", "backup", "live blobs", "left blobs", "foreground"):
        assert found[surface], surface
    assert any(found[name] for name in surfaces if name.startswith("live log") or name.endswith("-wal"))
    # In all its shapes, which the first test does not find in a single one.
    assert {name for canaries in found.values() for name in canaries} >= {name for name in spell(CANARY) if name not in ("JSON", "repr")}
