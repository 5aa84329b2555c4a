"""The chart's pods on a node of this machine, behind the control plane of the deploy tests."""
