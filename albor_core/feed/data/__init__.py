"""What is shown of training data: which data sets are known, what one holds, what a run reads."""
