"""What detectors need of facts, whatever language they came from."""
