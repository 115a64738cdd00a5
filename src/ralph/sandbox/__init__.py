"""Where agents and checks run: one file per backend, the proxy, the probes."""
