"""Every process of a deployment, and what it says."""
