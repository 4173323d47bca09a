"""One file per data set: where its files come from, and how they are checked, read and split."""
