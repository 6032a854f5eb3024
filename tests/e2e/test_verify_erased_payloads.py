"""`verify` tells a payload that was erased from one that is gone, as a start must."""

from __future__ import annotations

import apsw

from e2e.box import Box
from wakeful.eventlog.sqlite.files import StoreFiles


def test_verify_passes_an_erasure_on_record_and_names_a_payload_that_is_gone(box: Box) -> None:
    """This holds for an erased record of an erasure, too. A daemon can start on every log that `verify` passes."""
    box.spec("talk", "objective: Talk.\n")
    box.start()
    for number in range(4):
        box.ask("note", "talk", f"note {number}")
    seq = next(record["seq"] for record in box.log("talk") if record["payload"].get("text") == "note 1")
    box.ask("erase", "talk", str(seq), "--because", "a secret")
    box.ask("erase", "talk", str(box.log("talk")[-1]["seq"]))
    assert box.run("verify").returncode == 0
    box.stop()
    box.start()
    assert box.run("verify").returncode == 0
    box.stop()
    store = apsw.Connection(str(StoreFiles(box.state).database))
    store.execute(
        "UPDATE payload SET body = NULL WHERE event = (SELECT id FROM event WHERE kind = 'note_added' ORDER BY id LIMIT 1)"
    )
    store.close()
    told = box.run("verify", "--state", str(box.state))
    assert told.returncode == 1 and "its payload is gone, and not by erasure" in told.stdout + told.stderr, told
