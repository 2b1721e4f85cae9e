"""What a run leaves on disk: folder, lock, checkpoints, trackers, studies."""
