"""From .d2k text to a validated Task, and from a Task to JSON, prompts and graphs."""
