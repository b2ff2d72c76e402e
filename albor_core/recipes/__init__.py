"""What is trained, on what data, by which objective: one file a recipe; the loop knows no loss."""
