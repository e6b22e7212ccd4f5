"""From kernel files to facts, findings, audits and scores."""
