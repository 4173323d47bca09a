"""One file a data set: where its files come from, how they are checked, read and split."""
