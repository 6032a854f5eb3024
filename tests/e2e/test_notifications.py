"""Every kind of notifier tells people once for each cause.

No message is lost by a crash or by a server that is down.
"""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest

from e2e.box import Box
from notification_receivers import SECRET, MailServer, Receiver
from wait_conditions import eventually

ENVIRONMENT = {"WAKEFUL_SECRET_OPS_KEY": SECRET}
# Longer than notices are gathered for one message: any further message would have come by then.
QUIET_SECONDS = 3.0


def settings(receiver: Receiver, more: str = "") -> str:
    return f"notify:\n  ops: {{webhook: '{receiver.url}/hook', secret: ops-key{more}}}\n"


def failing(box: Box, name: str = "payroll", more: str = "") -> None:
    """Declare a session that fails while `broken` exists. Every change of its input starts a run."""
    box.spec(
        name,
        f"""
        objective: Pay.
        bindings: {{data: {{file: data-{name}.txt, settle: 0}}}}
        run: {{script: 'test ! -e broken || {{ echo no rates; exit 3; }}', retries: 0}}
        {more}
        """,
    )
    box.write(f"data-{name}.txt", "1")


def wait_for(receiver: Receiver, number: int) -> list[str]:
    eventually(lambda: len(receiver.requests) >= number, what=f"{number} messages")
    return receiver.titles()


def test_a_failure_is_told_once_and_so_is_its_end(box: Box) -> None:
    """The message is signed and has the session, the record and the command to look. The session's log records it."""
    with Receiver() as receiver:
        box.write("wakeful.yaml", settings(receiver))
        box.write("broken", "")
        failing(box)
        box.start(env=ENVIRONMENT)
        wait_for(receiver, 1)
        (told,) = receiver.requests
        failed = next(one for one in box.log("payroll") if one["kind"] == "run_finished")
        assert told.is_signed() and not told.is_signed(b"another key")
        assert told.document["type"] == "wakeful.failed"
        data = told.data
        assert (data["session"], data["seq"], data["run"]) == ("payroll", failed["seq"], 1)
        assert data["title"] == "payroll failed" and data["words"].startswith("run 1 failed: exit code 3;")
        assert data["look"] == "wakeful why payroll" and data["link"] is None
        # Two more failures of the same kind are no news.
        for text in ("2", "3"):
            box.save("data-payroll.txt", text)
            box.wait_at_rest("payroll", runs=int(text))
        (box.folder / "broken").unlink()
        box.save("data-payroll.txt", "4")
        assert wait_for(receiver, 2) == ["payroll failed", "payroll works again"]
        assert receiver.requests[1].data["words"] == "run 4 succeeded, after 3 failed runs"
        box.save("data-payroll.txt", "5")
        box.wait_at_rest("payroll", runs=5)
        time.sleep(QUIET_SECONDS)
        assert len(receiver.requests) == 2
        records = [one for one in box.log("payroll") if one["kind"] == "notification_delivered"]
        assert [(one["payload"]["event"], one["payload"]["about"]) for one in records][0] == ("failed", failed["seq"])
        assert [one["payload"]["delivery"] for one in records] == [
            one.headers["webhook-id"] for one in receiver.requests
        ]
        assert "notified ops of record" in box.words("log", "payroll")


def test_what_a_kill_left_untold_is_told_by_the_next_daemon(box: Box) -> None:
    """The event is in the log, and the daemon was killed before it sent the message."""
    with Receiver() as receiver:
        # The notifier gathers for so long that the kill comes first.
        box.write("wakeful.yaml", settings(receiver, ", digest: 10m"))
        failing(box)
        box.start(env=ENVIRONMENT)
        box.wait_at_rest("payroll", runs=1)
        box.write("broken", "")
        box.save("data-payroll.txt", "2")
        box.wait_for("payroll", runs=2, state="sleeping")
        box.kill()
        assert receiver.requests == []
        box.write("wakeful.yaml", settings(receiver))
        box.start(env=ENVIRONMENT)
        assert wait_for(receiver, 1) == ["payroll failed"]
        # Now the event is told. The next daemon does not tell it again, and a replay of the log sends nothing.
        eventually(lambda: "notification_delivered" in box.kinds("payroll"))
        box.kill()
        box.start(env=ENVIRONMENT)
        time.sleep(QUIET_SECONDS)
        assert len(receiver.requests) == 1


def test_a_new_notifier_hears_nothing_of_the_past(box: Box) -> None:
    with Receiver() as receiver:
        box.write("broken", "")
        failing(box)
        failing(box, "other")
        box.start(env=ENVIRONMENT)
        box.wait_for("payroll", state="sleeping")
        box.wait_for("other", state="sleeping")
        box.write("wakeful.yaml", settings(receiver))
        eventually(lambda: box.json("notify", "list"))
        box.save("data-other.txt", "2")
        assert wait_for(receiver, 1) == ["other failed"]
        time.sleep(QUIET_SECONDS)
        assert len(receiver.requests) == 1


def test_a_failed_upstream_is_one_message(box: Box) -> None:
    """Ten readers take its output as it is, and fail. Its failure is the cause of theirs."""
    with Receiver() as receiver:
        box.write("wakeful.yaml", settings(receiver))
        box.spec(
            "rates",
            """
            objective: Fetch rates.
            bindings:
              source: {file: source.txt, settle: 0}
              rates: {file: out/rates.txt, access: write}
            run: {script: 'cp source.txt out/rates.txt; test "$(cat source.txt)" != bad', retries: 0}
            """,
        )
        box.write("source.txt", "good")
        box.write("out/rates.txt", "")
        for number in range(10):
            box.spec(
                f"reader-{number}",
                """
                objective: Read.
                bindings: {rates: {file: out/rates.txt, settle: 0, stale: allow}}
                run: {script: 'test "$(cat out/rates.txt)" != bad', retries: 0}
                """,
            )
        box.start(env=ENVIRONMENT)
        for number in range(10):
            box.wait_at_rest(f"reader-{number}", runs=1)
        box.save("source.txt", "bad")
        for number in range(10):
            box.wait_for(f"reader-{number}", state="sleeping")
        wait_for(receiver, 1)
        time.sleep(QUIET_SECONDS)
        assert receiver.titles() == ["rates failed"]
        assert receiver.requests[0].data["words"].endswith("; 10 sessions after it wait for it")
        box.save("source.txt", "fine")
        assert wait_for(receiver, 2) == ["rates failed", "rates works again"]
        assert "; failed below it: reader-0, reader-1, reader-2" in receiver.requests[1].data["words"]
        for number in range(10):
            box.wait_at_rest(f"reader-{number}", runs=3)
        time.sleep(QUIET_SECONDS)
        assert len(receiver.requests) == 2


def test_a_flood_is_one_message_that_lists_them(box: Box) -> None:
    with Receiver() as receiver:
        box.write("wakeful.yaml", settings(receiver, ", digest: 3s"))
        names = [f"one-{number}" for number in range(12)]
        box.write("broken", "")
        for name in names:
            failing(box, name)
        box.start(env=ENVIRONMENT)
        for name in names:
            box.wait_for(name, state="sleeping")
        eventually(lambda: sum(len(one.data.get("items", (1,))) for one in receiver.requests) >= 12)
        assert len(receiver.requests) <= 3
        document = receiver.requests[-1].document
        assert document["type"] == "wakeful.digest"
        told = {item["session"] for one in receiver.requests for item in one.data.get("items", [one.data])}
        assert told == set(names)
        assert "wakeful why one-" in document["data"]["words"]
        eventually(lambda: all("notification_delivered" in box.kinds(name) for name in names))


def test_a_server_that_is_down_gets_the_message_later_under_the_same_id(box: Box) -> None:
    with Receiver() as receiver:
        pass
    box.write("wakeful.yaml", settings(receiver))
    box.write("broken", "")
    failing(box)
    box.start(env=ENVIRONMENT)
    (row,) = eventually(lambda: [one for one in box.json("notify", "list") if one["trying"]])
    assert "attempt 1 of 10 failed" in box.words("notify", "list")
    # The attempt is counted in memory first, and on disk a moment later.
    eventually(lambda: any('"attempts":1' in one.read_text() for one in (box.state / "notify").glob("*.json")))
    # A kill in between changes nothing, because the message is on disk.
    box.kill()
    box.start(env=ENVIRONMENT)
    with Receiver(port=receiver.port) as receiver:
        wait_for(receiver, 1)
        assert receiver.requests[0].headers["webhook-id"] == row["trying"]["id"]
        assert receiver.requests[0].is_signed()
        eventually(lambda: "notification_delivered" in box.kinds("payroll"))
        record = next(one for one in box.log("payroll") if one["kind"] == "notification_delivered")
        assert record["payload"]["attempts"] >= 2
        assert len(receiver.requests) == 1


def test_what_waits_is_tried_at_once_when_the_address_is_mended(box: Box) -> None:
    with Receiver() as gone, Receiver() as receiver:
        pass
    box.write("wakeful.yaml", settings(gone))
    box.write("broken", "")
    failing(box)
    box.start(env=ENVIRONMENT)
    eventually(lambda: [one for one in box.json("notify", "list") if one["trying"]])
    with Receiver(port=receiver.port) as receiver:
        box.write("wakeful.yaml", settings(receiver))
        assert wait_for(receiver, 1) == ["payroll failed"]


def test_a_redirect_is_a_failure(box: Box) -> None:
    """The daemon does not follow a redirect: only the user decides where messages go."""
    with Receiver() as other, Receiver(statuses=[302]) as receiver:
        receiver.headers["Location"] = f"{other.url}/elsewhere"
        box.write("wakeful.yaml", settings(receiver))
        box.start(env=ENVIRONMENT)
        done = box.run("notify", "test", "ops")
        assert done.returncode == 1 and "answered 302" in done.stdout and "not followed" in done.stdout
        assert len(receiver.requests) == 1 and other.requests == []


def test_a_receiver_that_is_gone_is_told_no_more(box: Box) -> None:
    """Status 410 disables the notifier, and `doctor` says so. A test message that arrives enables it again."""
    with Receiver(statuses=[410]) as receiver:
        box.write("wakeful.yaml", settings(receiver))
        box.write("broken", "")
        failing(box)
        failing(box, "other")
        box.start(env=ENVIRONMENT)
        (row,) = eventually(lambda: [one for one in box.json("notify", "list") if one["disabled"]])
        assert "answered 410" in row["disabled"] and row["given_up"] == 1
        assert "answered 410" in box.run("doctor").stdout.replace("\n      ", " ")
        assert "disabled" in box.words("notify", "list")
        told = len(receiver.requests)
        box.save("data-other.txt", "2")
        box.wait_for("other", runs=2)
        time.sleep(QUIET_SECONDS)
        assert len(receiver.requests) == told == 1
        abandoned = [
            one for name in ("payroll", "other") for one in box.log(name) if one["kind"] == "notification_abandoned"
        ]
        assert len(abandoned) == 1 and "410" in abandoned[0]["payload"]["words"]
        assert "delivered" in box.ask("notify", "test", "ops")
        assert box.json("notify", "list")[0]["disabled"] is None
        assert receiver.requests[-1].document["type"] == "wakeful.test"


def test_a_question_is_told_and_a_session_may_tell_nobody(box: Box) -> None:
    with Receiver() as receiver:
        box.write("wakeful.yaml", settings(receiver, ", on: [asks]"))
        failing(box, more="approve: before_run")
        failing(box, "silent", more="approve: before_run\n        notify: none")
        failing(box, "unknown", more="approve: before_run\n        notify: [opz]")
        box.start(env=ENVIRONMENT)
        assert sorted(wait_for(receiver, 2)) == ["payroll asks you", "unknown asks you"]
        assert all("may it run?" in one.data["words"] for one in receiver.requests)
        box.write("broken", "")
        box.ask("answer", "payroll", "yes")
        box.wait_for("payroll", runs=1)
        time.sleep(QUIET_SECONDS)
        # The run failed, and this notifier is not for failures.
        assert len(receiver.requests) == 2
        assert "notifier 'opz' is not in wakeful.yaml" in box.run("check").stdout + box.run("check").stderr


def test_a_spent_budget_is_told(box: Box) -> None:
    with Receiver() as receiver:
        box.write("wakeful.yaml", settings(receiver))
        failing(box, more="budget: {day: {runs: 1}}")
        box.start(env=ENVIRONMENT)
        box.wait_at_rest("payroll", runs=1)
        box.save("data-payroll.txt", "2")
        assert wait_for(receiver, 1) == ["payroll has spent its budget"]


def test_secrets_are_not_told(box: Box) -> None:
    """Neither the message nor the notifier's own file has the value of a secret."""
    with Receiver() as receiver:
        box.write("wakeful.yaml", settings(receiver))
        box.spec(
            "leak",
            """
            objective: Leak.
            approve: before_run
            bindings: {data: {file: data.txt}}
            run: {script: 'true'}
            """,
        )
        box.start(env=ENVIRONMENT | {"WAKEFUL_SECRET_PASSWORD": "swordfish-4711-swordfish"})
        box.ask("send", "leak", "the password is swordfish-4711-swordfish")
        wait_for(receiver, 1)
        assert b"swordfish" not in receiver.requests[0].body
        ledger = (box.state / "notify" / "ops.json").read_text()
        assert "swordfish" not in ledger and SECRET not in ledger


def test_a_program_gets_the_message(box: Box, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The program gets the message as JSON on standard input and in variables, without a shell.

    If it fails, its output is shown.
    """
    folder = tmp_path_factory.mktemp("programs")
    program = folder / "tell.sh"
    program.write_text(
        f'#!/bin/sh\ncat > "{folder}/told.json"\nenv > "{folder}/env"\n'
        f'[ ! -e "{folder}/refuse" ] || {{ echo the bell is broken; exit 7; }}\n'
    )
    program.chmod(0o755)
    box.write("wakeful.yaml", f"notify: {{bell: {{command: ['{program}', '$HOME; echo x']}}}}\n")
    box.write("broken", "")
    failing(box)
    box.start(env={"WAKEFUL_SECRET_PASSWORD": "swordfish-4711-swordfish", "SOME_TOKEN": "abc"})
    eventually(lambda: (folder / "env").exists() and "notification_delivered" in box.kinds("payroll"))
    assert '"title": "payroll failed"' in (folder / "told.json").read_text()
    environment = (folder / "env").read_text()
    assert "WAKEFUL_NOTIFY_SESSION=payroll\n" in environment and "WAKEFUL_NOTIFY_EVENT=failed\n" in environment
    assert "SOME_TOKEN" not in environment and "swordfish" not in environment
    (folder / "refuse").touch()
    done = box.run("notify", "test", "bell")
    assert done.returncode == 1 and "ended with 7: the bell is broken" in done.stdout


def test_the_desktop_shows_it_by_notify_send(box: Box, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A stub named notify-send stands in for the desktop, which tests do not have.

    Without that program, the error says what is missing.
    """
    folder = tmp_path_factory.mktemp("desktop")
    box.write("wakeful.yaml", "notify: {me: {desktop: true}}\n")
    box.start(env={"PATH": "/nowhere"})
    done = box.run("notify", "test", "me")
    assert done.returncode == 1 and "libnotify" in done.stdout
    box.kill()
    program = folder / "notify-send"
    program.write_text(f'#!/bin/sh\nfor word; do echo "$word"; done > "{folder}/shown"\n')
    program.chmod(0o755)
    failing(box, more="approve: before_run")
    box.start(env={"PATH": f"{folder}:{box.environment()['PATH']}"})
    eventually(lambda: "notification_delivered" in box.kinds("payroll"))
    shown = (folder / "shown").read_text()
    assert shown.startswith("--app-name=wakeful\n--urgency=critical\n--\npayroll asks you\nmay it run?")


def test_a_program_that_a_run_can_write_is_not_started(box: Box) -> None:
    """Otherwise a run could leave its isolation through that program."""
    program = box.write("tell.sh", "#!/bin/sh\ntouch ran\n")
    program.chmod(0o755)
    box.write("wakeful.yaml", "notify: {bell: {command: [./tell.sh]}}\n")
    failing(box)
    box.start()
    box.wait_at_rest("payroll", runs=1)
    done = box.run("notify", "test", "bell")
    assert done.returncode == 1 and "runs of payroll may write" in done.stdout
    assert not (box.folder / "ran").exists()


def mail_settings(server: MailServer, more: str = "") -> str:
    return (
        "notify: {mail: {email: {to: [ana@example.org, ben@example.org], from: wakeful@example.org, "
        f"server: 'smtp://127.0.0.1:{server.port}'{more}}}}}}}\n"
    )


def test_mail_is_sent(box: Box) -> None:
    """The mail goes to a real server on loopback.

    Its Message-ID is the id in the record, so that a mail sent twice can be recognized.
    """
    with MailServer() as server:
        box.write("wakeful.yaml", mail_settings(server))
        box.write("broken", "")
        failing(box)
        box.start()
        eventually(lambda: server.mails)
        ((to, text),) = server.mails
        assert to == ["ana@example.org", "ben@example.org"]
        assert "Subject: payroll failed" in text and "run 1 failed: exit code 3" in text
        assert "Look: wakeful why payroll" in text
        eventually(lambda: "notification_delivered" in box.kinds("payroll"))
        record = next(one for one in box.log("payroll") if one["kind"] == "notification_delivered")
        assert f"Message-ID: <{record['payload']['delivery']}@example.org>" in text


def test_mail_goes_over_tls_where_the_server_offers_it(box: Box, tmp_path: Path) -> None:
    """The daemon sends the password after STARTTLS, and never before."""
    certificate = tmp_path / "server.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*make, "-keyout", certificate, "-out", f"{certificate}.crt"], check=True, capture_output=True)
    certificate.write_text(certificate.read_text() + Path(f"{certificate}.crt").read_text())
    with MailServer(certificate) as server:
        box.write("wakeful.yaml", mail_settings(server, ", user: wakeful, secret: mail"))
        box.start(env={"WAKEFUL_SECRET_MAIL": "correct-horse-battery"})
        assert "took it for ana@example.org" in box.ask("notify", "test", "mail")
        assert server.logins == [("wakeful", "correct-horse-battery", True)]
        assert len(server.mails) == 1


def test_ntfy_and_any_address_get_it_in_their_form(box: Box) -> None:
    """ntfy gets its token in a header. A body from the settings is filled in, and the secret is part of the address."""
    with Receiver() as receiver:
        box.write(
            "wakeful.yaml",
            f"notify:\n  phone: {{ntfy: '{receiver.url}/topic', secret: phone}}\n"
            f"  slack: {{url: '{receiver.url}/services/{{secret}}', secret: slack, "
            "body: {text: '{title}: {words} {unknown}', kind: ['{event}']}}\n",
        )
        box.write("broken", "")
        failing(box, "lohn-März")
        box.start(env={"WAKEFUL_SECRET_PHONE": "tk_0123456789", "WAKEFUL_SECRET_SLACK": "T000/B000/XXXXXXXX"})
        eventually(lambda: len(receiver.requests) >= 2)
        by_path = {one.path: one for one in receiver.requests}
        phone, slack = by_path["/topic"], by_path["/services/T000/B000/XXXXXXXX"]
        assert phone.headers["Authorization"] == "Bearer tk_0123456789"
        assert phone.headers["Title"].startswith("=?UTF-8?B?") and phone.headers["Priority"] == "high"
        assert "Look: wakeful why lohn-März" in phone.body.decode()
        text = slack.document["text"]
        assert text.startswith("lohn-März failed: run 1 failed: exit code 3;") and text.endswith(" {unknown}")
        assert slack.document["kind"] == ["failed"]
        assert "Authorization" not in slack.headers
        listed = box.ask("notify", "list")
        assert "XXXXXXXX" not in listed and "tk_0123456789" not in listed and "topic" not in listed


def test_a_secret_that_is_missing_is_told(box: Box) -> None:
    with Receiver() as receiver:
        box.write("wakeful.yaml", settings(receiver))
        box.start()
        done = box.run("notify", "test", "ops")
        assert done.returncode == 1 and "wakeful secret set ops-key" in done.stdout
        assert box.run("notify", "test", "opz").returncode == 1
        assert receiver.requests == []


def test_a_daemon_that_runs_once_tells_before_it_ends(box: Box) -> None:
    """No daemon may come after it, because its state folder may vanish with the machine."""
    with Receiver() as receiver:
        box.write("wakeful.yaml", f"notify: {{any: {{url: '{receiver.url}/any'}}}}\n")
        box.write("broken", "")
        failing(box)
        done = box.once()
        assert done.returncode == 1
        assert receiver.titles() == ["payroll failed"]


def test_a_session_that_waits_for_a_secret_is_told_once(box: Box) -> None:
    """No record says that the session sleeps; the daemon finds out by looking. A restart tells nothing again."""
    with Receiver() as receiver:
        box.write("wakeful.yaml", settings(receiver))
        failing(box, "old", more="secrets: [old-token]")
        box.start(env=ENVIRONMENT)
        box.wait_for("old", state="sleeping")
        # The first session slept before the notifier's first look: nothing is told about it.
        failing(box, more="secrets: [bank-token]")
        assert wait_for(receiver, 1) == ["payroll sleeps until a person acts"]
        assert "wakeful secret set bank-token" in receiver.requests[0].data["words"]
        eventually(lambda: "notification_delivered" in box.kinds("payroll"))
        box.kill()
        box.start(env=ENVIRONMENT)
        time.sleep(QUIET_SECONDS)
        assert len(receiver.requests) == 1
        box.kill()
        box.start(env=ENVIRONMENT | {"WAKEFUL_SECRET_BANK_TOKEN": "0123456789-bank"})
        box.wait_at_rest("payroll", runs=1)
        eventually(lambda: "bank-token" not in (box.state / "notify" / "ops.json").read_text())
        box.kill()
        box.start(env=ENVIRONMENT)
        assert wait_for(receiver, 2)[1] == "payroll sleeps until a person acts"


def test_a_message_links_to_the_session_and_the_record(box: Box) -> None:
    """The link is there because the daemon listens on TCP."""
    with Receiver() as receiver:
        box.write("wakeful.yaml", settings(receiver) + "http: 127.0.0.1:0\n")
        box.write("broken", "")
        failing(box, "hr/payroll")
        box.write("data-hr/payroll.txt", "1")
        box.start(env=ENVIRONMENT)
        wait_for(receiver, 1)
        data = receiver.requests[0].data
        port = re.search(r"http http://127\.0\.0\.1:(\d+)", box.output.read_text())[1]
        assert data["link"] == f"http://127.0.0.1:{port}/#/session/hr%2Fpayroll?at={data['seq']}"
