"""A user's nn.Module: where members come from, how it is called, probes, flow, reading its structure."""
