"""The files of runs: their contents by digest, what each run read and wrote, restoring and replaying them."""
