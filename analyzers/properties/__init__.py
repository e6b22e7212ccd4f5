"""One file a property: definition, examples, detector."""
