"""Results to charts, pages and reports; no computing."""
