//! Full-batch execution, training, metrics and checkpoints.
