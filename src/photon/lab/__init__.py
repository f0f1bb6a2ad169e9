"""Tools that test a deployment, imported by no production process: demo, chaos, the proxy between regions."""
