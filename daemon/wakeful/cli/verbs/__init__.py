"""What each verb does: one module for those that belong together, imported when one of them is used."""
