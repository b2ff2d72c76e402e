"""What packing does in its work folder: documents into ids, ids into shards."""
