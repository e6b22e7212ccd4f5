"""What several detectors look for: recurring shapes of computation, whatever language they came from."""
