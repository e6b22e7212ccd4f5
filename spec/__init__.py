"""The language as data and the records that every room exchanges."""
