"""Commits bindings: repositories, trees and commits, read by git commands that write nothing."""
