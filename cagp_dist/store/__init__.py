"""What is on the disk: checksummed arrays, ingested observations and published runs."""
