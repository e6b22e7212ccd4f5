"""The front door d2kc; composes the rooms, holds no logic."""
