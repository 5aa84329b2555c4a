"""The models that a worker serves: loaded by the settings and the policy, and exchanged when the policy changes."""
