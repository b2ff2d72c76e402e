"""The processes that train together, and how a model is spread over them."""
