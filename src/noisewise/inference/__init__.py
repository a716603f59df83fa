"""What all algorithms share: the problem, streams of blocks, settings, statuses, progress."""
