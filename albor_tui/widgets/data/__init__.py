"""What is shown of training data: lists of data sets and sources, what was dropped, batches."""
