"""What knows nothing of networks: errors, checks, text, files, threads, quadrature, series, roots, statistics."""
