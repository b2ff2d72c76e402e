"""One module a screen; tabs of a run and dialogs in folders of their own."""
