"""Sources look at the outside world. Each source turns targets into versions, and reports hints when to look."""
