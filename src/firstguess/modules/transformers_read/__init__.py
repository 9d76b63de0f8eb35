"""Reading transformers: models as pieces, each a layer of a description with the model's own weights for it."""
