"""Every process of a deployment, and its reports."""
