"""The program of a session that takes every commit: it adds the commit it was woken for to a ledger."""

import json
import os
import sys

with open(os.environ["WAKEFUL_CAUSES"]) as file:
    causes = json.load(file)["causes"]
with open(sys.argv[1], "a") as ledger:
    for cause in causes:
        if cause["kind"] == "commits":
            # With `line: all` the version has other commits after this one: those that were seen beside its history.
            ledger.write(f"{cause['new'].partition(',')[0]}\n")
