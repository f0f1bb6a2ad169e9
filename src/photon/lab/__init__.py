"""Tools that prove a deployment and that no production process imports: demo, chaos, the proxy between regions."""
