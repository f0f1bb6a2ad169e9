"""Stores rows in HBase, over connections to its Thrift servers."""
