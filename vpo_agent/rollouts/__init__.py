"""From prompts to responses to reward matrices."""
