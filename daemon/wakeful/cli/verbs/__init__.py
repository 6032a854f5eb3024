"""The verbs of the command line, which call the daemon and print its answers.

Each module is imported when it is used.
"""
