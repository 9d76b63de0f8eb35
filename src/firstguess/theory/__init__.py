"""No weight is drawn: closed form, kernel, the distribution of the guesses, phases."""
