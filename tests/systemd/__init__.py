"""Tests with a real systemd, booted for them.

This is a package by name, because a library is called `systemd`, too.
"""
