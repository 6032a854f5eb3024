"""How verbs are carried out and their answers printed: one module for related verbs, imported when one is used."""
