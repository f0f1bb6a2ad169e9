"""Ships copies of output to another datacentre, and keeps them (protocol rules 6 and 14)."""
