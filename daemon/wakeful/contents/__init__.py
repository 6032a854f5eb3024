"""What runs read and wrote, kept as blobs: taken down while they run, put back by `rewind --files`, run again by `replay`."""
