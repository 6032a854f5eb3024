"""A real systemd, booted for the tests. A package by name: a library is called `systemd`, too."""
