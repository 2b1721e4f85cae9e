"""One gradient step: loss, micro-batches, optimizer."""
