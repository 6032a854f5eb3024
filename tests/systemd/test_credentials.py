"""A credential of systemd's: read by the daemon, lent to the run that names it, and out of reach of every run otherwise."""

import pytest

from systemd.machine import ACCOUNT, SPECS, Machine
from waiting import eventually

# Run by `make test-long`: a daemon for each of its tests takes its time.
pytestmark = pytest.mark.long

SERVICE = f"wakeful@{ACCOUNT}.service"
HOME = f"/home/{ACCOUNT}"
VALUE = "s3cr3t-of-the-machine-4711"
# What is lent is measured, what is not is tried for: both leave a file that says how it went.
SPEC = """
objective: Find the key.
bindings:
  i: {{file: in.txt, settle: 10ms}}
  o: {{file: out-{name}/found, access: write}}
{secrets}
run:
  script: |
    wc -c < "${{WAKEFUL_SECRET_API_KEY:-/dev/null}}" > out-{name}/found
    cat /run/credentials/{service}/api-key >> out-{name}/found 2>&1 || echo denied >> out-{name}/found
    env | grep -c CREDENTIALS_DIRECTORY >> out-{name}/found || true
"""


@pytest.fixture(scope="module")
def service(machine: Machine) -> Machine:
    """The unit with a credential, as an operator would give it one."""
    machine.write(f"{HOME}/in.txt", "1\n")
    for name, secrets in (("keyed", "secrets: [api-key]"), ("plain", "")):
        machine.write(f"{HOME}/out-{name}/.keep", "")
        machine.write(SPECS / f"{name}.yaml", SPEC.format(name=name, secrets=secrets, service=SERVICE))
    machine.run(
        "sh",
        "-c",
        f"umask 077; mkdir -p /etc/wakeful/credentials; printf %s {VALUE} > /etc/wakeful/credentials/api-key",
    )
    machine.drop_in(SERVICE, "[Service]\nLoadCredential=api-key:/etc/wakeful/credentials/api-key\n")
    machine.run("wakeful", "install", "--system", "--account", ACCOUNT, "--specs", str(SPECS))
    return machine


def found(machine: Machine, name: str) -> list[str]:
    return eventually(
        lambda: len(lines := machine.read(f"{HOME}/out-{name}/found").split("\n")) > 3 and lines, what=f"{name} has run"
    )


def test_a_credential_reaches_the_run_that_names_it_and_no_other(service: Machine) -> None:
    """The daemon has its folder; a run has the one secret it asked for, as a file of its own, and not the folder."""
    pid = service.show(SERVICE, "MainPID")[0]
    assert f"CREDENTIALS_DIRECTORY=/run/credentials/{SERVICE}" in service.read(f"/proc/{pid}/environ")
    # The account itself may read it: what keeps a run from it is its confinement.
    assert service.run("cat", f"/run/credentials/{SERVICE}/api-key", is_person=True) == VALUE
    keyed, plain = found(service, "keyed"), found(service, "plain")
    assert (keyed[0].strip(), plain[0].strip()) == (str(len(VALUE)), "0")
    for lines in (keyed, plain):
        assert "denied" in lines and VALUE not in "\n".join(lines)
        assert lines[-2] == "0"


def test_no_durable_place_holds_the_credential(service: Machine) -> None:
    """Not the log, not the state folder, not the journal."""
    found(service, "keyed")
    assert service.ask("grep", "-rl", VALUE, f"/var/lib/wakeful/{ACCOUNT}").stdout == ""
    assert VALUE not in service.journal()
