"""What a run leaves on disk: folder, lock, checkpoints, studies."""
