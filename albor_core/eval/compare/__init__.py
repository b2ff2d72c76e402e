"""Which of two models is better, item by item, by scores and by people; what goes with the loss."""
