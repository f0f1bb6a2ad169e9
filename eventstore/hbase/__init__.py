"""The file map on HBase: connections, row keys, the local catalogue, the map, creation of the table."""
