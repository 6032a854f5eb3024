"""A credential of systemd: the daemon reads it, and only the run that names it gets it."""

import pytest

from systemd.systemd_machine import ACCOUNT, SPECS, Machine
from wait_conditions import eventually

# Run by `make test-long`, because these tests boot a machine and start a daemon.
pytestmark = pytest.mark.long

SERVICE = f"wakeful@{ACCOUNT}.service"
HOME = f"/home/{ACCOUNT}"
VALUE = "s3cr3t-of-the-machine-4711"
# The run measures the secret that it was given, and tries to read the credential itself. Its output has both results.
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
    """Install the unit with a credential, as an operator does."""
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
    """The daemon has the folder of credentials.

    A run has only the secret that it names, as a file of its own, and not the folder.
    """
    pid = service.show(SERVICE, "MainPID")[0]
    assert f"CREDENTIALS_DIRECTORY=/run/credentials/{SERVICE}" in service.read(f"/proc/{pid}/environ")
    # The account itself may read the credential. Only a run's confinement prevents it.
    assert service.run("cat", f"/run/credentials/{SERVICE}/api-key", is_person=True) == VALUE
    keyed, plain = found(service, "keyed"), found(service, "plain")
    assert (keyed[0].strip(), plain[0].strip()) == (str(len(VALUE)), "0")
    for lines in (keyed, plain):
        assert "denied" in lines and VALUE not in "\n".join(lines)
        assert lines[-2] == "0"


def test_no_durable_place_holds_the_credential(service: Machine) -> None:
    """Neither the state folder, which has the log, nor the journal has the value."""
    found(service, "keyed")
    assert service.ask("grep", "-rl", VALUE, f"/var/lib/wakeful/{ACCOUNT}").stdout == ""
    assert VALUE not in service.journal()
