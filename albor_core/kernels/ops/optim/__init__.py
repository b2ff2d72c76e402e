"""The update of the optimizers: AdamW and Muon."""
