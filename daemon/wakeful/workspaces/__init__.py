"""Workspaces: the own files of a fork or a run. A fork's files are compared with its parent's and merged back."""
