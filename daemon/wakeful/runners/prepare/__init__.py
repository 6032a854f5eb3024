"""Work that is done before a run starts, so that the start itself is short."""
