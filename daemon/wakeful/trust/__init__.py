"""The specs that are in force: folders that are followed as they are edited,
and folders in which a person trusts each text.

`ledger` keeps what was trusted, `spec_reader` reads every folder and says of each spec whether it may count, `desk` is
for people.
"""
