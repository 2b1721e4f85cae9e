"""Rewards of a short reply to a customer: it names the facts, it is warm, it is brief."""

MOST_WORDS = 20


def facts(prompt: str, response: str, facts: list[str]) -> float:
    """The share of the customer's name, the item and the wish that the reply names."""
    words = words_of(response)
    return 0.0 if prompt in response else sum(fact in words for fact in facts) / len(facts)


def warm(response: str) -> float:
    """The reply says sorry, and thanks."""
    return sum(word in words_of(response) for word in ("sorry", "thank")) / 2


def brief(completions: list[str], **_: object) -> list[float]:
    """The fewer words, the better."""
    return [1 - len(words) / MOST_WORDS if (words := words_of(text)) else 0.0 for text in completions]


def words_of(response: str) -> list[str]:
    """Return the words of a reply, none if it is too long."""
    words = response.replace(",", " ").split()
    return words if len(words) <= MOST_WORDS else []
