"""Decides which specs are in force.

Some folders are followed: their specs are in force as they are edited. In the other folders a person must trust each
text. `ledger` stores what was trusted. `spec_reader` reads every folder and decides for each spec whether it counts.
`trust_review` answers the API.
"""
