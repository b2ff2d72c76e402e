"""The Data screen: which data sets are known here, and what is in them."""
