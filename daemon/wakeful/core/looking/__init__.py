"""The paths that a binding matches, and the daemon's present view of its targets."""
