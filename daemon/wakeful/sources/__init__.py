"""Sources look at the outside world. A source turns targets into versions, and hints that a target may have changed."""
