"""The program of a storm's travelling session: a digest of its files, as `digest_program.py` makes it, and two ledgers.

It is called as `migrating_program.py OUTPUT JOURNAL SECONDS PATTERN…`. The journal says when each run began and ended, by the
clock that both hosts share. The notes in the scratch folder go with the session from host to host. They have a line for
each run that came to its end.
"""

import os
import sys
import time

from digest_program import digest_files


def main() -> None:
    output, journal, seconds, *patterns = sys.argv[1:]
    run = os.environ["WAKEFUL_RUN"]
    with open(journal, "a", buffering=1) as ledger:
        ledger.write(f"began {run} {time.monotonic_ns()}\n")
        time.sleep(float(seconds))
        with open(output, "w") as file:
            file.write(digest_files(os.getcwd(), patterns))
        with open(os.path.join(os.environ["WAKEFUL_SCRATCH"], "notes"), "a") as notes:
            notes.write(f"{run}\n")
        ledger.write(f"ended {run} {time.monotonic_ns()}\n")


if __name__ == "__main__":
    main()
