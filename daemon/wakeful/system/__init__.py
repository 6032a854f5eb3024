"""Services of the operating system: systemd, the journal, threads, folders, safe opening of paths."""
