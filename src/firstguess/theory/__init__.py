"""No weight is drawn: closed form, kernel, the law of the guesses, phases."""
