"""What verbs that make files would read and write: `--plan`, one document for all of them."""
