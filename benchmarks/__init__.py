"""What mollification costs: every line beside plain PyTorch, interleaved, on one thread and two. ``make bench`` runs all."""
