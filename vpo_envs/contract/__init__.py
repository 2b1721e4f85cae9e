"""What every environment inherits: episodes, the scores of answers, exact fronts, random streams, and errors."""
