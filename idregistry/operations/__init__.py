"""What operators do with a registry: look at it, export, back up, restore, replace a replica."""
