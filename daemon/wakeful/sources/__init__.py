"""Code that looks at the outside world: each source turns targets into versions, and hints into looks."""
