"""Tools that test a deployment: demo, chaos, the proxy between regions. No production process imports them."""
