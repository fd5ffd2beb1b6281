"""What a guard and the main thread's reports keep to with the agent."""

from __future__ import annotations

PULL_MS = 100  # how long the guard waits for a task before it looks around
TEXT_MAX = 1000  # characters of an error that the agent is told
