"""What mollification costs: every line compared with plain PyTorch, interleaved, on one thread and two. ``make bench`` runs all."""
