"""Many runs on one screen: a legend and the charts of all their metrics."""
