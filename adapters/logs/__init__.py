"""Following growing logs: discovery, identity, framing, reading. One follower for both sides."""
