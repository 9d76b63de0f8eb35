"""The description: networks, layers with all their meanings, activations, and the states that flow through them."""
