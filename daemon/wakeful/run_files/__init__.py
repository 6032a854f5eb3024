"""The files of runs: their contents by digest, what each run read and wrote, and how to restore and replay them."""
