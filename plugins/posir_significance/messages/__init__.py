"""All sentences about results, made from numbers and names."""
