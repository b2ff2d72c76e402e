"""The JSON documents that commands print and runs hold, each typed once: the type is its schema."""
