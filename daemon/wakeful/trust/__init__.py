"""Whose specs are in force: folders that are followed as they are edited, and those in which a person trusts each text.

`ledger` keeps what was trusted, `reader` reads every folder and says of each spec whether it may count,
`desk` is what people do.
"""
