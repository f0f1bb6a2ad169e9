"""Tables kept up to date by transactions and observers, after Google's Percolator (OSDI 2010)."""
