"""Reading foreign logs again: of a time range an operator asks for, and of ids that the registry gave up."""
