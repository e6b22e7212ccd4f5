"""What a submission does besides its design: one module a guard. Evidence and a suspicion, never a verdict."""
