"""The routes of the control socket, one module for each family of verbs."""
