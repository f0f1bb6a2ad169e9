"""A wide-area network on one machine: a proxy between regions that delays and cuts connections."""
