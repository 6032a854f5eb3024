"""A run writes out its secret in every way it can, and no stored data or output of a verb holds it.

A second test shows that the same program would leave the value everywhere, if it were not known as a secret.
"""

from __future__ import annotations

import base64
import fcntl
import gzip
import html
import json
import os
import pty
import re
import shutil
import stat
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from e2e.box import WAKEFUL, Box
from wait_conditions import eventually
from wakeful.secrets.store import save_secret

# Run by `make test-long`, because each test starts a daemon, which takes long.
pytestmark = pytest.mark.long

LEAK = Path(__file__).with_name("secret_leaker.py")
CANARY = "cnry-7Qf/R2+x9Zk=L0v&w4T'nB8<s>"
ROTATED = "cnry-second/Value+9Xy=M1w&e5U'oC9<t>"
SECRET = """
objective: Log in somewhere.
secrets: [canary]
bindings: {in: {file: in.txt}, out: {file: out/result.txt, access: write}}
run: {script: 'exec python3 secret_leaker.py "$WAKEFUL_SECRET_CANARY"', retries: 0}
"""
# The same program with the same value, which the daemon does not know as a secret.
OPEN = """
objective: Log in somewhere.
bindings: {value: {file: value.txt}, out: {file: out/result.txt, access: write}}
run: {command: [python3, secret_leaker.py, value.txt], retries: 0}
"""


def spell(value: str) -> dict[str, bytes]:
    """Return the value in the shapes in which `secret_leaker.py` writes it. They do not depend on our redaction code."""
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
        # Not even half of a value may remain anywhere.
        "its first half": raw[: len(raw) // 2],
        "its last half": raw[len(raw) // 2 :],
    }


def find_canaries(data: bytes, value: str) -> list[str]:
    found = [name for name, shape in spell(value).items() if shape in data]
    # Also search JSON inside of JSON, and the blobs in a bundle.
    plain = data.replace(b"\\\\", b"\\").replace(b'\\"', b'"')
    inner = b"\n".join(_decode(text) for text in re.findall(rb'"([A-Za-z0-9+/]{16,}={0,2})"', data))
    return found + [f"{name}, inside" for name, shape in spell(value).items() if shape in inner or shape in plain]


def _decode(text: bytes) -> bytes:
    try:
        return base64.b64decode(text)
    except ValueError:
        return b""


def read_surfaces(box: Box, session: str) -> dict[str, bytes]:
    """Return all stored data, and the output of every verb that shows it."""
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
    # Read the log while the daemon lives, with its write-ahead log, and again after it has stopped.
    surfaces |= read_state(box, "live")
    box.stop()
    surfaces |= read_state(box, "left")
    surfaces["foreground"] = box.output.read_bytes()
    return surfaces


def read_state(box: Box, when: str) -> dict[str, bytes]:
    """Return the contents of the state folder, except for the scratch folders, which belong to runs."""
    files = [
        path for path in box.state.rglob("*") if path.is_file() and "scratch" not in path.relative_to(box.state).parts
    ]
    groups: dict[str, bytes] = {}
    for path in files:
        kind = f"{when} {path.relative_to(box.state).parts[0]}"
        groups[kind] = groups.get(kind, b"") + path.read_bytes() + b"\n"
    return groups


class SecretBox(Box):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # The user's config lies outside of the runs' reach, as usual.
        self.config = folder.with_name(f"{folder.name}-config")
        shutil.copy(LEAK, folder / "secret_leaker.py")
        self.write("in.txt", "1")
        (folder / "out").mkdir()

    def environment(self) -> dict[str, str]:
        return super().environment() | {"XDG_CONFIG_HOME": str(self.config)}

    def set_secret(self, name: str, value: str) -> None:
        done = subprocess.run(
            [WAKEFUL, "secret", "set", name],
            input=value.encode(),
            env=self.environment(),
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert not find_canaries(done.stdout + done.stderr, value)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[SecretBox]:
    made = SecretBox(tmp_path)
    yield made
    made.close()


def test_a_secret_that_a_run_says_in_every_way_is_nowhere_afterwards(box: SecretBox) -> None:
    """This covers all stored data, and all verbs that show it.

    The data are the database, its write-ahead log, blobs, backup, bundle and foreground output.
    """
    box.set_secret("canary", CANARY)
    box.spec("leaky", SECRET)
    box.start()
    box.wait_at_rest("leaky", runs=1)
    # Words of a person are redacted, too.
    box.ask("send", "leaky", f"is it {CANARY}?", "--no-wake")
    box.ask("note", "leaky", f"it is {base64.b64encode(CANARY.encode()).decode()}")
    finished = next(record["payload"] for record in box.log("leaky") if record["kind"] == "run_finished")
    assert finished["exit_code"] == 1
    output = box.ask("output", "leaky")
    assert output.count("[secret canary]") >= 12 and "could not log in with [secret canary]" in output
    assert "[secret canary]" in box.ask("facts", "leaky") and "is it [secret canary]?" in box.ask(
        "log", "leaky", "--json"
    )
    # The run may write the value into its own output.
    assert CANARY in box.read("out/result.txt")
    surfaces = read_surfaces(box, "leaky")
    found = {name: canaries for name, data in surfaces.items() if (canaries := find_canaries(data, CANARY))}
    assert not found
    # Nothing is left in the run's own folder either.
    assert not [path for path in box.runtime.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]


def test_the_same_program_would_have_told_it_everywhere(box: SecretBox) -> None:
    """This proves that the search works: here the value is not known as a secret."""
    box.write("value.txt", CANARY)
    box.spec("leaky", OPEN)
    box.start()
    box.wait_at_rest("leaky", runs=1)
    surfaces = read_surfaces(box, "leaky")
    found = {name: find_canaries(data, CANARY) for name, data in surfaces.items()}
    for surface in ("log", "output", "export", "facts", "bundle", "backup", "live blobs", "left blobs", "foreground"):
        assert found[surface], surface
    assert any(found[name] for name in surfaces if name.startswith("live log") or name.endswith("-wal"))
    # The value is found in nearly all shapes. The first test finds none of them.
    assert {name for canaries in found.values() for name in canaries} >= {
        name for name in spell(CANARY) if name not in ("JSON", "repr")
    }


# -- what a run is given ------------------------------------------------------------------------

LOOK = """
import json, os, stat, sys
path = os.environ["WAKEFUL_SECRET_CANARY"]
print(json.dumps({
    "value": open(path).read(),
    "mode": [stat.S_IMODE(os.stat(place).st_mode) for place in (path, os.path.dirname(path))],
    "path": path,
    "inherited": sorted(name for name, value in os.environ.items() if os.environ.get("NEEDLE", "cnry-") in value),
    "argv": open("/proc/self/cmdline").read(),
}), file=open("out/result.txt", "w"))
"""
LOOKING = SECRET.replace("secret_leaker.py", "look.py")


def test_a_run_finds_its_secret_in_a_file_of_its_own_that_goes_with_it(box: SecretBox) -> None:
    """No argument and no variable holds the value.

    Other users cannot read the file, and it is removed after the run.
    """
    box.set_secret("canary", CANARY)
    box.write("look.py", LOOK)
    box.spec("looking", LOOKING)
    box.start()
    assert box.wait_at_rest("looking", runs=1)["last_run"]["outcome"] == "succeeded", box.ask("output", "looking")
    found = json.loads(box.read("out/result.txt"))
    assert (found["value"], found["mode"]) == (CANARY, [0o600, 0o700])
    assert found["inherited"] == [] and "cnry-" not in found["argv"]
    eventually(lambda: not os.path.exists(found["path"]))


@pytest.mark.parametrize("source", ["credential", "file", "environment"])
def test_a_secret_comes_from_systemd_a_file_or_the_environment(box: SecretBox, source: str) -> None:
    """None of the daemon's own variables reaches a run, whatever its name is."""
    env = {"WAKEFUL_SECRET_OTHER": "cnry-another-one"}
    if source == "credential":
        (box.folder / "credentials").mkdir(mode=0o700)
        (box.folder / "credentials" / "canary").write_text(CANARY)
        env["CREDENTIALS_DIRECTORY"] = str(box.folder / "credentials")
    elif source == "environment":
        env["WAKEFUL_SECRET_CANARY"] = CANARY
    else:
        box.set_secret("canary", CANARY)
    box.write("look.py", LOOK)
    box.spec("looking", LOOKING)
    box.start(env=env)
    box.wait_at_rest("looking", runs=1)
    assert json.loads(box.read("out/result.txt"))["value"] == CANARY
    listed = {row["name"]: row for row in box.json("secret", "list")}
    assert (listed["canary"]["source"], listed["canary"]["sessions"]) == (source, ["looking"])
    assert listed["OTHER"] == {"name": "OTHER", "source": "environment", "problem": None, "sessions": []}
    assert not find_canaries(box.run("secret", "list").stdout.encode(), CANARY)


def test_a_session_without_its_secret_sleeps_and_wakes_by_itself_when_it_is_set(box: SecretBox) -> None:
    """Other sessions continue. A secret that others can read counts as missing, and `show` says so."""
    box.spec("leaky", SECRET)
    box.spec("other", "objective: o\nbindings: {in: {file: in.txt}}\nrun: {command: ['true']}\n")
    box.start()
    box.wait_at_rest("other", runs=1)
    row = box.row("leaky")
    assert (row["state"], row["runs"]) == ("sleeping", 0)
    assert "needs a secret: canary (wakeful secret set canary)" in box.words("show", "leaky")
    assert "needs a secret" in box.words("secret", "list")
    # Write the secret by hand, without telling the daemon, and first with a mode that others can read.
    save_secret(str(box.config / "wakeful" / "secrets"), "canary", CANARY.encode())
    path = box.config / "wakeful" / "secrets" / "canary"
    path.chmod(0o644)
    eventually(lambda: "mode 0644" in box.words("show", "leaky"))
    path.chmod(0o600)
    box.wait_at_rest("leaky", runs=1)
    assert [kind for kind in box.kinds("leaky") if kind == "run_started"] == ["run_started"]


def test_a_new_value_counts_from_the_next_run_on_and_both_are_hidden(box: SecretBox) -> None:
    """The run under way keeps the first value. Both values are redacted in its output."""
    box.set_secret("canary", CANARY)
    script = (
        'cat "$WAKEFUL_SECRET_CANARY"; until [ -e go ]; do sleep 0.05; done; cat "$WAKEFUL_SECRET_CANARY" second.txt'
    )
    box.spec(
        "slow",
        f"objective: o\nsecrets: [canary]\nbindings: {{in: {{file: in.txt}}, second: {{file: second.txt, wake: false}}, go: {{file: go, wake: false}}}}\nrun: {{script: '{script}'}}\n",
    )
    box.start()
    box.wait_for("slow", state="running")
    box.set_secret("canary", ROTATED)
    box.write("second.txt", f"\n{ROTATED}\n")
    box.write("go", "")
    box.wait_at_rest("slow", runs=1)
    assert box.ask("output", "slow").split() == ["[secret", "canary][secret", "canary]", "[secret", "canary]"]
    box.save("in.txt", "2")
    box.wait_at_rest("slow", runs=2)
    surfaces = read_surfaces(box, "slow")
    assert not {
        name: found
        for name, data in surfaces.items()
        if (found := find_canaries(data, CANARY) + find_canaries(data, ROTATED))
    }


def test_whoever_follows_the_output_sees_it_redacted_as_it_comes(box: SecretBox) -> None:
    """A value split over two writes is never shown. Harmless output does not wait for the end of the run."""
    box.set_secret("canary", CANARY)
    half = len(CANARY) // 2
    program = (
        "import os, sys, time\n"
        "value = open(os.environ['WAKEFUL_SECRET_CANARY']).read()\n"
        f"for piece in ('first line\\n', value[:{half}], value[{half}:], '\\nsecond line\\n'):\n"
        "    sys.stdout.write(piece); sys.stdout.flush(); time.sleep(0.3)\n"
        "while not os.path.exists('go'): time.sleep(0.05)\n"
    )
    box.write("speak.py", program)
    box.spec("speaking", SECRET.replace("secret_leaker.py", "speak.py"))
    box.start()
    box.wait_for("speaking", state="running")
    following = subprocess.Popen(
        [WAKEFUL, "output", "speaking", "--follow"],
        cwd=box.folder,
        env=box.environment(),
        stdout=(box.folder / "followed").open("wb"),
    )
    try:
        eventually(lambda: "second line" in box.read("followed"))
        assert box.read("followed") == "first line\n[secret canary]\nsecond line\n"
    finally:
        box.write("go", "")
        following.wait(60)
    assert not find_canaries((box.folder / "followed").read_bytes(), CANARY)


def test_a_probe_has_its_sessions_secrets_and_its_complaints_are_redacted(box: SecretBox) -> None:
    """A probe can read its session's secrets. Its error messages are redacted."""
    box.set_secret("canary", CANARY)
    box.write("ask.sh", 'cat "$WAKEFUL_SECRET_CANARY" >&2; [ -e up ] && wc -c < "$WAKEFUL_SECRET_CANARY"')
    box.spec(
        "asking",
        "objective: o\nsecrets: [canary]\nbindings: {ask: {probe: [sh, ask.sh], check_every: 1s}}\nrun: {command: ['true']}\n",
    )
    box.start()
    eventually(lambda: "[secret canary]" in box.words("show", "asking"))
    box.write("up", "")
    box.wait_at_rest("asking", runs=1)
    assert not [path for path in box.runtime.rglob("lent-*")]
    surfaces = read_surfaces(box, "asking")
    assert not {name: found for name, data in surfaces.items() if (found := find_canaries(data, CANARY))}


def test_a_file_that_holds_a_secret_is_said_not_to_be_kept(box: SecretBox) -> None:
    """The record of the file gives the reason why its content is not kept."""
    box.set_secret("canary", CANARY)
    box.spec("leaky", SECRET)
    box.start()
    box.wait_at_rest("leaky", runs=1)
    finished = next(record["payload"] for record in box.log("leaky") if record["kind"] == "run_finished")
    address = finished["files"].removeprefix("blake2b-")
    files = json.loads((box.state / "blobs" / address[:2] / address[2:]).read_text())
    entries = [entry for binding in files["bindings"] for entry in binding.get("after", {}).get("entries", [])]
    assert [(entry["path"], entry["not_kept"]) for entry in entries] == [("out/result.txt", "holds a secret")]


def test_a_spec_that_holds_a_value_is_refused_before_the_log_has_it(box: SecretBox) -> None:
    """The refusal says how to declare a secret instead. The spec is taken once the value is gone from it."""
    box.set_secret("canary", CANARY)
    text = "objective: o\nbindings: {{in: {{file: in.txt}}}}\nrun: {{command: [echo], env: {{TOKEN: {}}}}}\n"
    box.spec("told", text.format(json.dumps(CANARY)))
    box.start()
    eventually(lambda: "holds the value of the secret canary" in box.output.read_text())
    assert box.rows() == []
    box.spec("told", text.format("none"))
    eventually(lambda: any(row["name"] == "told" for row in box.rows()))
    box.wait_at_rest("told", runs=1)
    surfaces = read_surfaces(box, "told")
    assert not {name: found for name, data in surfaces.items() if (found := find_canaries(data, CANARY))}


@pytest.mark.parametrize(
    "opening",
    ["allow: {{read: ['{config}']}}", "allow: {{write: ['{config}/wakeful/secrets/canary']}}", "root: {config}"],
)
def test_a_spec_that_would_open_every_secret_is_refused(box: SecretBox, opening: str) -> None:
    """A run may read only the secrets that it names.

    A folder beside the secrets may be opened, their own folder may not.
    """
    box.set_secret("canary", CANARY)
    text = f"objective: o\n{opening.format(config=box.config)}\nbindings: {{in: {{file: '**/*.txt'}}}}\nrun: {{command: ['true']}}\n"
    box.spec("wide", text)
    box.spec(
        "narrow",
        f"objective: o\nallow: {{read: ['{box.config}/tool']}}\nbindings: {{in: {{file: in.txt}}}}\nrun: {{command: ['true']}}\n",
    )
    box.start()
    eventually(lambda: "would open every secret" in box.output.read_text())
    assert [row["name"] for row in box.rows()] == ["narrow"]


def test_a_replay_is_given_no_secret_and_says_so(box: SecretBox) -> None:
    box.set_secret("canary", CANARY)
    box.spec("leaky", SECRET)
    box.start()
    box.wait_at_rest("leaky", runs=1)
    shown = box.run("replay", "leaky", "1")
    assert "secret canary" in shown.stdout + shown.stderr and not find_canaries(
        (shown.stdout + shown.stderr).encode(), CANARY
    )


def test_a_secret_is_asked_for_unseen_and_a_short_one_is_refused(box: SecretBox) -> None:
    """At a terminal nothing is echoed, and a mistyped repetition stores nothing."""

    def type_in(*lines: str) -> tuple[int, str]:
        leader, follower = pty.openpty()
        asking = subprocess.Popen(
            [WAKEFUL, "secret", "set", "canary"], stdin=follower, stdout=follower, stderr=follower, env=box.environment(),
            # getpass asks at the controlling terminal, whatever standard input is.
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(follower)
        shown = b""
        for line, prompt in zip(lines, (b"value of canary: ", b"once more: "), strict=True):
            while prompt not in shown:
                shown += os.read(leader, 1000)
            os.write(leader, f"{line}\n".encode())
        while True:
            try:
                piece = os.read(leader, 1000)
            except OSError:
                break
            if not piece:
                break
            shown += piece
        os.close(leader)
        return asking.wait(60), shown.decode()

    path = box.config / "wakeful" / "secrets" / "canary"
    code, shown = type_in(CANARY, ROTATED)
    assert code != 0 and "differ" in shown and not path.exists()
    code, shown = type_in(CANARY, CANARY)
    assert (
        code == 0 and "cnry-" not in shown and path.read_text() == CANARY and stat.S_IMODE(path.stat().st_mode) == 0o600
    )
    done = subprocess.run(
        [WAKEFUL, "secret", "set", "tiny"], input=b"1234567\n", env=box.environment(), capture_output=True, timeout=60
    )
    assert done.returncode != 0 and b"at least 8" in done.stderr and b"1234567" not in done.stderr + done.stdout
