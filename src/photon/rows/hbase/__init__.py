"""HBase: connections to its Thrift servers, and rows in it."""
