"""Copies of output in another datacentre (protocol rules 6 and 14): shipping and keeping."""
