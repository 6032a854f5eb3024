"""Sessions as files: save, load, archive, move between two daemons, erase.

Nothing is lost, and nothing is done twice.
"""

from __future__ import annotations

import gzip
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.box import Box
from wait_conditions import eventually

# Run by `make test-long`, because each of its tests starts a daemon.
pytestmark = pytest.mark.long

COUNTING = """
    objective: Count the lines.
    bindings: {input: {file: in.txt, settle: 10ms}, out: {file: out.txt, access: write}}
    run: {command: [sh, -c, 'wc -l < in.txt > out.txt; date +%N >> "$WAKEFUL_SCRATCH/notes"; echo counted'], retries: 0}
"""
CANARY = "swordfish-canary-7261"


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Box]:
    """Another host: a daemon with its own folder and state."""
    made = Box(tmp_path / "there")
    yield made
    made.close()


def start_counting(box: Box) -> None:
    box.write("in.txt", "1\n")
    box.spec("count", COUNTING)
    box.start()
    box.wait_at_rest("count", runs=1)


def facts(box: Box, name: str) -> dict[str, str]:
    return {fact["key"]: fact["value"] for fact in box.json("facts", name)}


def hashes(box: Box, name: str) -> list[str]:
    return [record["hash"] for record in box.log(name)]


def test_a_bundle_becomes_a_session_of_its_own_elsewhere(box: Box, there: Box) -> None:
    """The loaded session has the same facts and the same earlier history, but another identity.

    It sleeps until it is activated.
    """
    start_counting(box)
    box.ask("remember", "count", "month", "March")
    saved = box.json("save", "count", "-o", "count.bundle")
    assert saved["records"] == len(box.log("count")) and saved["head"] == hashes(box, "count")[-1]
    there.start()
    loaded = there.json("load", str(box.folder / "count.bundle"))
    assert loaded["name"] == "count" and loaded["head"] == saved["head"]
    assert facts(there, "count") == {"month": "March"}
    shown = there.json("show", "count")
    assert shown["id"] != box.json("show", "count")["id"] and shown["origin"]["hash"] == saved["head"]
    assert shown["state"] == "sleeping" and shown["runs"] == 0
    there.kill()
    there.start()
    assert facts(there, "count") == {"month": "March"} and there.row("count")["state"] == "sleeping"
    assert "sound" in there.words("verify")
    # The loaded records happened elsewhere. An export has them only with --with-loaded.
    there.ask("export", "-o", "own.jsonl")
    there.ask("export", "--with-loaded", "-o", "all.jsonl")
    exported = [json.loads(line)["hash"] for line in there.lines("all.jsonl")]
    assert len(exported) == len(there.lines("own.jsonl")) + saved["records"] and saved["head"] in exported
    # A second load of the same bundle makes another fork under a free name, and imports no record.
    again = there.json("load", str(box.folder / "count.bundle"))
    assert again["name"] == "count-loaded" and again["records"] == 0


def test_a_loaded_session_works_where_it_is_given_a_place(box: Box, there: Box) -> None:
    """With `--root`, the bindings point to that folder. The scratch folder comes with the session."""
    start_counting(box)
    box.ask("save", "count", "-o", "count.bundle")
    there.start()
    there.write("project/in.txt", "1\n2\n3\n")
    there.ask(
        "load",
        str(box.folder / "count.bundle"),
        "--as",
        "here",
        "--root",
        str(there.folder / "project"),
        "--trust",
        "--yes",
    )
    assert there.run("activate", "here", "--wait").returncode == 0
    assert there.read("project/out.txt").strip() == "3"
    notes = there.state / "scratch" / there.json("show", "here")["id"] / "notes"
    assert len(notes.read_text().splitlines()) == 2


def test_a_damaged_or_foreign_bundle_is_refused_and_leaves_nothing(box: Box, there: Box) -> None:
    """A changed, cut, empty or foreign file gives an error. It leaves no session, record or file."""
    start_counting(box)
    box.ask("save", "count", "-o", "count.bundle")
    whole = (box.folder / "count.bundle").read_bytes()
    there.start()
    for name, content in {
        "flipped": whole[:-40] + bytes([whole[-40] ^ 1]) + whole[-39:],
        "cut": whole[: len(whole) // 2],
        "junk": b"no bundle",
        "empty": b"",
    }.items():
        path = there.folder / f"{name}.bundle"
        path.write_bytes(content)
        done = there.run("load", str(path))
        assert done.returncode == 1 and done.stderr.strip(), name
    assert there.rows() == []
    assert not list(there.state.glob("scratch/*"))
    assert there.run("load", "nowhere.bundle").returncode == 1
    done = box.run("save", "count", "-o", "count.bundle")
    assert done.returncode == 1 and "count.bundle" in done.stderr
    assert (box.folder / "count.bundle").read_bytes() == whole


def test_a_session_moves_with_its_identity_and_lives_once(box: Box, there: Box) -> None:
    """The session is frozen at the source, and keeps its id and chain at the destination.

    An unchanged input there does not wake it. The receipt closes the session at the source.
    """
    start_counting(box)
    box.ask("remember", "count", "month", "March")
    before = box.json("show", "count")
    moved = box.json("migrate", "count", "--to", str(box.folder / "move.bundle"))
    refused = box.run("activate", "count")
    assert refused.returncode == 1 and "frozen" in refused.stderr
    box.write("in.txt", "1\n2\n")
    there.spec("count", COUNTING)
    there.write("in.txt", "1\n")
    there.write("out.txt", (box.folder / "out.txt").read_text())
    # The spec arrives with the project. It must not declare another session before the move.
    (there.specs / "count.yaml").rename(there.folder / "count.yaml")
    there.start()
    arrived = there.json("load", "--move", str(box.folder / "move.bundle"))
    assert arrived["receipt"]["move"] == moved["move"]
    (there.folder / "count.yaml").rename(there.specs / "count.yaml")
    there.wait_for("count", state="sleeping")
    shown = there.json("show", "count")
    assert (
        shown["id"] == before["id"] and shown["runs"] == before["runs"] and facts(there, "count") == {"month": "March"}
    )
    assert hashes(there, "count")[: len(hashes(box, "count"))] == hashes(box, "count")
    there.ask("resume", "count")
    there.wait_at_rest("count")
    assert there.row("count")["runs"] == before["runs"]
    there.write("in.txt", "1\n2\n3\n")
    there.wait_at_rest("count", runs=before["runs"] + 1)
    (box.folder / "receipt.json").write_text(json.dumps(arrived))
    box.ask("migrate", "count", "--receipt", "receipt.json")
    assert "moved to another host" in box.row("count")["reason"]
    assert "its receipt came already" in box.words("migrate", "count", "--receipt", "receipt.json")
    box.kill()
    box.start()
    assert box.run("activate", "count").returncode == 1
    assert box.run("load", "--move", str(box.folder / "nowhere.bundle")).returncode == 1


def test_a_move_through_ssh_feeds_the_receipt_back(box: Box, there: Box) -> None:
    """A stub stands in for ssh and runs the command with the other host's socket."""
    start_counting(box)
    there.start()
    program = box.folder / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        'echo "$@" > "$0.asked"\n'
        'while [ "$1" != "--" ]; do shift; done; shift; shift\n'
        f'WAKEFUL_SOCKET={there.socket} exec "$@"\n'
    )
    program.chmod(0o755)
    path = {"PATH": f"{program.parent}:{box.environment()['PATH']}"}
    done = box.run("migrate", "count", "--to", "ssh://me@laptop:2222", env=path)
    assert done.returncode == 0, done.stderr
    asked = (box.folder / "bin" / "ssh.asked").read_text()
    assert "-p 2222" in asked and "me@laptop wakeful load --move -" in asked
    assert there.row("count")["id"] == box.row("count")["id"]
    assert "moved to another host" in box.row("count")["reason"]


def test_a_move_that_fails_leaves_the_session_frozen_and_says_what_to_do(box: Box) -> None:
    """The daemon cannot know what happened on the other host.

    A person looks there, then gives up the move or feeds the receipt.
    """
    start_counting(box)
    program = box.folder / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho no route to host >&2; exit 255\n")
    program.chmod(0o755)
    done = box.run("migrate", "count", "--to", "ssh://laptop", env={"PATH": f"{program.parent}:{os.environ['PATH']}"})
    assert done.returncode == 1 and "no route to host" in done.stderr and "--give-up" in done.stderr
    box.write("in.txt", "1\n2\n")
    box.ask("migrate", "count", "--give-up")
    box.wait_at_rest("count", runs=2)
    assert box.read("out.txt").strip() == "2"


def test_an_ordinary_bundle_does_not_move_a_session(box: Box, there: Box) -> None:
    """Two copies could live, so the daemon refuses and names the way without --move."""
    start_counting(box)
    box.ask("save", "count", "-o", "count.bundle")
    there.start()
    done = there.run("load", "--move", str(box.folder / "count.bundle"))
    assert done.returncode == 1 and "without --move" in done.stderr


def test_an_archived_session_leaves_the_log_small_and_comes_back(box: Box) -> None:
    """Its state stays readable while its payloads are in a bundle.

    The chain verifies before, while it is archived, and after the load.
    """
    start_counting(box)
    box.ask("remember", "count", "secretive", CANARY)
    records = box.log("count")
    assert "sound" in box.words("verify")
    box.ask("archive", "count")
    assert box.row("count")["state"] == "archived"
    assert facts(box, "count") == {"secretive": CANARY}
    assert [record["hash"] for record in box.log("count")][: len(records)] == [record["hash"] for record in records]
    assert box.log("count")[0]["payload"] is None
    box.write("in.txt", "1\n2\n")
    box.kill()
    box.start()
    assert box.row("count")["state"] == "archived" and facts(box, "count") == {"secretive": CANARY}
    assert "sound" in box.words("verify")
    done = box.run("show", "count", "--at", "2")
    assert done.returncode == 1 and "archived" in done.stderr
    box.ask("load", "count")
    box.wait_at_rest("count", runs=2)
    assert box.log("count", "--to", str(len(records))) == records
    assert box.json("show", "count", "--at", "2")["seq"] == 2
    assert "sound" in box.words("verify")


def test_a_secret_that_was_said_is_gone_from_everywhere(box: Box) -> None:
    """The secret is gone from all answers and from every file of the state folder, also after a restart.

    The chain still verifies.
    """
    start_counting(box)
    box.ask("note", "count", f"the password is {CANARY}")
    seq = box.json("show", "count")["seq"]
    box.ask("save", "count", "--as", "here")
    box.ask("rewind", "count", "here")
    shown = box.json("erase", "count", str(seq), "--dry-run")
    assert shown["preview"]["stand_in"] == {"text": "[erased]"} and len(shown["preview"]["also_in"]) == 1
    words = box.words("erase", "count", str(seq), "--because", "a password")
    assert "the same text is also in count" in words
    box.ask("erase", "count", shown["preview"]["also_in"][0].split()[1])
    assert CANARY not in box.ask("show", "count", "--json")
    assert CANARY not in box.ask("log", "count", "--json")
    assert find_in(box.state, CANARY) == []
    assert "sound" in box.words("verify")
    box.kill()
    box.start()
    assert CANARY not in box.ask("show", "count", "--json") and box.json("show", "count")["handoff"] == "[erased]"
    assert find_in(box.state, CANARY) == []
    done = box.run("erase", "count", str(seq))
    assert done.returncode == 1 and "erased or archived already" in done.stderr
    done = box.run("erase", "count", "999")
    assert done.returncode == 1 and "there is no 999" in done.stderr


def find_in(folder: Path, text: str) -> list[str]:
    """Return the files that contain the text, also those that are compressed."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    contents = ((path, path.read_bytes()) for path in files)
    return [
        str(path)
        for path, content in contents
        if text.encode() in (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    ]


def test_what_is_erased_leaves_the_old_archives_too(box: Box) -> None:
    """An archive stays after the load that brought its session back, and the erasure reaches it.

    While a session is archived, `erase` says what to do first.
    """
    start_counting(box)
    box.ask("note", "count", f"the word is {CANARY}")
    seq = box.json("show", "count")["seq"]
    box.ask("archive", "count")
    assert any("archive" in path for path in find_in(box.state, CANARY))
    done = box.run("erase", "count", str(seq))
    assert done.returncode == 1 and "wakeful load count" in done.stderr
    box.ask("load", "count")
    also = box.json("erase", "count", str(seq), "--dry-run")["preview"]["also_in"]
    for number in (str(seq), *(one.split()[1] for one in also)):
        box.ask("erase", "count", number)
    assert find_in(box.state, CANARY) == []
    assert "sound" in box.words("verify")
    (bundle,) = (box.state / "archive").glob("*.bundle")
    assert box.run("load", str(bundle), "--as", "again").returncode == 0
    bundle.write_bytes(bundle.read_bytes()[:-9])
    box.ask("note", "count", "another")
    number = box.json("show", "count")["seq"]
    assert box.run("erase", "count", str(number)).returncode == 0, "a record the bundle cannot hold does not ask it"


@pytest.mark.parametrize("key", [(), ("--key", "once")])
def test_an_erasure_that_an_archive_stopped_is_recorded_once_and_finished_when_asked_again(
    box: Box, key: tuple[str, ...]
) -> None:
    """With a key or without, the log has one record of it.

    The bytes go when the erasure is asked for again and nothing stops it.
    """
    start_counting(box)
    box.ask("note", "count", f"the word is {CANARY}")
    seq = box.json("show", "count")["seq"]
    box.ask("archive", "count")
    box.ask("load", "count")
    (bundle,) = (box.state / "archive").glob("*.bundle")
    bundle.write_bytes(bundle.read_bytes()[:-9])
    for _ in range(2):
        done = box.run("erase", "count", str(seq), *key)
        assert done.returncode == 1 and "delete that file" in done.stderr
    assert CANARY in box.ask("log", "count", "--json")
    bundle.unlink()
    box.ask("erase", "count", str(seq), *key)
    assert box.log("count", "--from", str(seq), "--to", str(seq))[0]["payload"] is None
    assert box.kinds("count").count("payload_erased") == 1


def test_an_erasure_names_archived_sessions_that_hold_the_same_words(box: Box) -> None:
    """A fork carries the history it took over, also into the archive.

    After a load it is erased like any other session, until no file has the words.
    """
    start_counting(box)
    box.ask("note", "count", f"the word is {CANARY}")
    seq = box.json("show", "count")["seq"]
    box.ask("fork", "count", "--as", "trial")
    box.ask("terminate", "trial")
    box.ask("archive", "trial")
    words = box.words("erase", "count", str(seq))
    assert "trial 1 (archived)" in words
    box.ask("load", "trial")
    also = box.json("erase", "trial", "1", "--dry-run")["preview"]["also_in"]
    for number in ("1", *(one.split()[1] for one in also)):
        box.ask("erase", "trial", number)
    assert find_in(box.state, CANARY) == []
    assert "sound" in box.words("verify")


def test_a_bundle_of_a_session_that_is_archived_here_says_what_comes_first(box: Box) -> None:
    start_counting(box)
    box.ask("save", "count", "-o", "count.bundle")
    box.ask("archive", "count")
    done = box.run("load", str(box.folder / "count.bundle"))
    assert done.returncode == 1 and "is archived here" in done.stderr and "wakeful load count" in done.stderr
    box.ask("load", "count")
    assert box.json("load", str(box.folder / "count.bundle"))["name"] == "count-loaded"


def test_rewind_takes_back_what_its_runs_wrote(box: Box) -> None:
    """The files come from the copies that were kept.

    A file that others changed since is left alone without --force. With --force their version is kept aside.
    """
    start_counting(box)
    box.ask("save", "count", "--as", "one")
    box.write("in.txt", "1\n2\n")
    box.wait_at_rest("count", runs=2)
    assert box.read("out.txt").strip() == "2"
    preview = box.json("rewind", "count", "one", "--files", "--dry-run")["preview"]["files"]
    assert [(step["path"], step["action"]) for step in preview["steps"]] == [("out.txt", "restore")]
    done = box.json("rewind", "count", "one", "--files")
    assert [(file["path"], file["ending"]) for file in done["files"]] == [("out.txt", "restored")]
    assert box.read("out.txt").strip() == "1" and box.wait_at_rest("count")["runs"] == 2
    assert not any(binding.get("drift") for binding in box.json("show", "count")["bindings"])
    box.write("in.txt", "1\n2\n3\n")
    box.wait_at_rest("count", runs=3)
    box.write("out.txt", "by hand\n")
    refused = box.run("rewind", "count", "one", "--files", "--json")
    assert refused.returncode == 1 and json.loads(refused.stdout)["files"][0]["ending"] == "refused"
    assert box.read("out.txt") == "by hand\n"
    forced = box.json("rewind", "count", "one", "--files", "--force")
    assert forced["files"][0]["ending"] == "restored" and forced["files"][0]["kept"]
    assert box.read("out.txt").strip() == "1"


def test_another_agent_is_one_that_exists(box: Box) -> None:
    """A change of the agent is recorded, shown and undone. An agent or a model that does not exist is refused."""
    start_counting(box)
    done = box.run("migrate", "count", "--agent", "nobody")
    assert done.returncode == 1 and "no agent is called 'nobody'" in done.stderr
    (box.specs / "agents").mkdir()
    (box.specs / "agents" / "auditor.yaml").write_text("prompt: Audit.\n")
    before = box.kinds("count")
    for model, words in (
        ("small", "'small' is no model; write PROVIDER:NAME"),
        ("antropic:claude-opus-4-5", "there is no provider 'antropic'; did you mean 'anthropic:claude-opus-4-5'?"),
        ("openai-compatible:small", "openai-compatible:small needs base_url"),
    ):
        refused = box.run("migrate", "count", "--agent", "auditor", "--model", model)
        assert refused.returncode == 1 and words in refused.stderr
    assert box.kinds("count") == before, "a model that is refused is not recorded"
    assert "did you mean anthropic:claude-opus-4-5?" in box.words(
        "migrate", "count", "--agent", "auditor", "--model", "anthropic:claude-opuss-4-5"
    )
    assert "did you mean" not in box.words(
        "migrate", "count", "--agent", "auditor", "--model", "anthropic:claude-opus-9"
    )
    shown = box.json("show", "count")
    assert (shown["agent"], shown["model"]) == ("auditor", "anthropic:claude-opus-9")
    box.ask("migrate", "count")
    assert box.json("show", "count")["agent"] is None


def test_retention_archives_what_is_over_and_nothing_else(box: Box) -> None:
    """A session whose file is gone is due when its time is over, and a dry run says why.

    A session that is declared or has failed is never due.
    """
    start_counting(box)
    box.spec("stays", "objective: Stay.\nrun: {command: ['true']}\n")
    box.spec("broken", "objective: Fail.\nbindings: {input: {file: in.txt}}\nrun: {command: ['false'], retries: 0}\n")
    box.write("wakeful.yaml", "retention: {keep: 1d}\n")
    eventually(lambda: {row["name"] for row in box.rows()} == {"count", "stays", "broken"})
    box.wait_for("broken", state="sleeping")
    (box.specs / "count.yaml").unlink()
    (box.specs / "broken.yaml").unlink()
    box.wait_for("count", state="sleeping")

    def due() -> dict[str, str]:
        return {one["name"]: one["why"] for one in box.json("archive", "--due", "--dry-run")["sessions"]}

    assert due() == {}
    box.write("wakeful.yaml", "retention: {keep: 1s}\n")
    eventually(lambda: list(due()) == ["count"])
    assert due()["count"].startswith("not active for ") and due()["count"] in box.words("archive", "--due", "--dry-run")
    assert {row["state"] for row in box.rows()} == {"suspended", "sleeping"}
    assert "not active for" in box.words("archive", "--due")
    assert box.row("count")["state"] == "archived" and box.row("broken")["state"] == "sleeping"
    assert due() == {}
    box.ask("load", "count")
    assert box.row("count")["state"] == "sleeping"


def test_what_old_runs_left_is_moved_and_read_as_before(box: Box) -> None:
    """Their outputs go into one compressed file.

    `output` and `rewind --files` find them there after a restart, and an erasure removes them from it.
    """
    box.write("in.txt", "1\n")
    box.spec("count", COUNTING.replace("echo counted", "cat out.txt"))
    box.start()
    box.wait_at_rest("count", runs=1)
    box.ask("save", "count", "--as", "one")
    for run in (2, 3):
        box.write("in.txt", "1\n" * run)
        box.wait_at_rest("count", runs=run)
    box.write("wakeful.yaml", "retention: {runs: 1}\n")
    due = eventually(lambda: box.json("archive", "--due", "--dry-run")["outputs"])
    assert [one["name"] for one in due] == ["count"] and due[0]["bytes"] > 0
    before = sum(1 for path in (box.state / "blobs").rglob("*") if path.is_file())
    assert "the outputs of" in box.words("archive", "--due")
    (moved,) = (box.state / "archive" / "outputs").glob("*.zip")
    assert sum(1 for path in (box.state / "blobs").rglob("*") if path.is_file()) < before
    assert box.json("archive", "--due", "--dry-run")["outputs"] == []
    box.kill()
    box.start()
    assert box.ask("output", "count", "--run", "1").strip() == "1"
    assert box.json("rewind", "count", "one", "--files")["files"] == [
        {"path": "out.txt", "ending": "restored", "reason": None, "kept": None}
    ]
    assert box.read("out.txt").strip() == "1"
    assert not [check for check in box.json("doctor") if check["name"] == "blobs" and check["verdict"] != "good"]
    (finished,) = [record for record in box.log("count") if record["kind"] == "run_finished" and record["run"] == 1]
    assert finished["payload"]["output"]["head"] in zipfile.ZipFile(moved).namelist()
    box.ask("erase", "count", str(finished["seq"]))
    assert finished["payload"]["output"]["head"] not in zipfile.ZipFile(moved).namelist()
