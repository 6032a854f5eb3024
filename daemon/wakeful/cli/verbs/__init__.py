"""The verbs of the command line, which call the daemon and print its answers. Imported when one is used."""
