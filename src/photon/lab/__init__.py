"""What proves a deployment, and no production process imports: demo, chaos, the proxy between regions."""
