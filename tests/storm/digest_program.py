"""The program of every session of a storm, and of its oracle: a digest of the files that some patterns match now.

It knows nothing of wakeful: it lists and reads by itself. `digest_program.py OUTPUT SECONDS PATTERN…` writes the digest. A file
with the word `poison` makes it fail.
"""

import glob
import hashlib
import os
import subprocess
import sys
import time

POISON = b"poison"


class Poisoned(Exception):
    """An input says that the program must fail."""


def digest_files(root: str, patterns: list[str]) -> str:
    """Return a digest of the names and contents of all matches.

    A link counts as the file it leads to. A folder, or a link that leads nowhere, does not count.
    """
    found = hashlib.sha256()
    for pattern in patterns:
        for path in sorted(glob.glob(os.path.join(root, pattern), recursive=True)):
            try:
                with open(path, "rb") as file:
                    content = file.read()
            except OSError:
                continue
            if POISON in content:
                raise Poisoned(path)
            found.update(os.path.relpath(path, root).encode() + b"\0" + content + b"\0")
    return found.hexdigest()


def find_tree(repository: str, path: str) -> str:
    """Return the tree of HEAD:path, or `none`."""
    done = subprocess.run(
        ["git", "-C", repository, "rev-parse", "--verify", "--quiet", f"HEAD:{path}"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "none"


def main() -> None:
    output, seconds, *patterns = sys.argv[1:]
    time.sleep(float(seconds))
    if patterns[0] == "--tree":
        text = find_tree(*patterns[1:])
    else:
        try:
            text = digest_files(os.getcwd(), patterns)
        except Poisoned as error:
            sys.exit(f"poison in {error}")
    with open(output, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main()
