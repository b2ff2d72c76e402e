"""Models as Hugging Face keeps them: tensors streamed in, the same names out."""
