"""Tests of sessions that think.

This is a regular package. A peer that the benchmarks measure is importable as `agents` too, and would otherwise win.
"""
