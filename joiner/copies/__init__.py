"""Copies of output in another datacentre (protocol rules 6 and 14): who ships, and who keeps."""
