"""Questions to a store: filters, lists, series, groups, exports."""
