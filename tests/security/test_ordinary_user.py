"""The user of the attacks in this folder is an ordinary one. Otherwise the other tests would prove nothing."""

from __future__ import annotations

from ordinary_user import OrdinaryBox


def test_the_daemon_and_its_runs_belong_to_an_ordinary_user(ordinary_box: OrdinaryBox) -> None:
    ordinary_box.spec(
        "who",
        """
        bindings: {out: {file: out/who.txt, access: write}}
        first: run
        run: {script: "id -u > out/who.txt; id -un >> out/who.txt; cat /proc/self/status | grep CapEff >> out/who.txt"}
        """,
    )
    ordinary_box.start()
    ordinary_box.ask("activate", "who")
    ordinary_box.wait_at_rest("who", runs=1)
    uid, _, capabilities = ordinary_box.lines("out/who.txt")
    assert int(uid) == ordinary_box.user.uid != 0
    assert int(capabilities.split()[1], 16) == 0
    assert ordinary_box.row("who")["last_run"]["outcome"] == "succeeded"
