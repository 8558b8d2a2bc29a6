"""The values that results store, which add up over subsets: evidence, ranks, profile, scores."""
