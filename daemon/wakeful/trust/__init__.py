"""Decides which specs are in force: folders that are followed as they are edited, and folders in which a person trusts
each text.

`ledger` stores what was trusted. `spec_reader` reads every folder and decides for each spec whether it counts.
`trust_review` answers the API.
"""
