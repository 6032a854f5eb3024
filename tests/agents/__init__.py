"""Tests of sessions that think. A regular package: a peer that benchmarks measure is importable as `agents` too, and would win."""
