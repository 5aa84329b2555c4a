"""Dialogues that were written by hand, in words that the templates do not have, to see how far what was learnt reaches.

An answer is right if it has all that is expected of it, whatever stands around that.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.demo_model.customer import Skill

_UNKNOWN = ("sorry", "only help")


@dataclass(frozen=True, slots=True)
class Question:
    """One message, and what its answer must contain (in any case)."""

    user: str
    skill: Skill
    expected: tuple[str, ...]


def _echo(user: str, *expected: str) -> Question:
    return Question(user, Skill.ECHO, expected)


def _number(user: str, *expected: str) -> Question:
    return Question(user, Skill.NUMBER, expected)


def _name(user: str, *expected: str) -> Question:
    return Question(user, Skill.NAME, expected)


def _unknown(user: str, *expected: str) -> Question:
    return Question(user, Skill.DECLINE, expected or _UNKNOWN)


def _rest(user: str, *expected: str) -> Question:
    return Question(user, Skill.REST, expected)


FREE: tuple[tuple[Question, ...], ...] = (
    (
        _rest("Hi! I'm Alice.", "Alice"),
        _echo("my order 4711 still hasn't shown up, where is it?", "4711"),
        _name("Can you still tell me what my name is?", "Alice"),
        _number("And what order number did I give you?", "4711"),
    ),
    (
        _echo("Hello, I am Bob and my order number is 98765.", "Bob", "98765"),
        _number("When is it going to arrive?", "98765"),
        _rest("Which forms of payment do you offer?", "PayPal"),
        _name("What was my name again?", "Bob"),
        _number("What was my order number again?", "98765"),
    ),
    (
        _rest("hey there, nadja here", "nadja"),
        _rest("my toaster broke after two days", "toaster"),
        _rest("i'd rather have my money back", "refund"),
        _name("do you remember who you are talking to", "nadja"),
        _rest("thanks, bye", "welcome"),
    ),
    (
        _echo("order 30021 pls", "30021"),
        _echo("please cancel order 30021", "cancelled", "30021"),
        _number("which order did we just cancel? tell me the order number", "30021"),
    ),
    (
        _rest("Good day, my name is Priyanka Rao.", "Priyanka Rao"),
        _rest("My customer number is 5583.", "5583"),
        _rest("What does it cost to have something delivered?", "4.90"),
        _number("What is my customer number?", "5583"),
        _name("What's my name?", "Priyanka"),
    ),
    (
        _unknown("What is the tallest mountain on earth?"),
        _unknown("Who painted the Mona Lisa?"),
        _unknown("Give me a recipe for pancakes"),
        _unknown("whats 12 times 12"),
        _unknown("Is it raining in Hamburg right now?"),
    ),
    (
        _unknown("What is my name?", "not told me"),
        _unknown("Do you know my order number?", "not told me"),
        _unknown("What is my shoe size?", "not told me"),
        _rest("My name is Wolfgang.", "Wolfgang"),
        _name("What is my name?", "Wolfgang"),
    ),
    (
        _rest("Hello", "help"),
        _rest("Where's my stuff? It should have been here last week!", "order number"),
        _echo("Oh right, it's 77120", "77120"),
        _rest("How do I get an invoice for this?", "invoice"),
        _number("could you say my order number once more", "77120"),
    ),
    (
        _rest("My favourite colour is teal.", "teal"),
        _rest("How long is your warranty?", "two years"),
        _rest("What is my favourite colour?", "teal"),
        _unknown("Can you write an essay about the French revolution?"),
    ),
    (
        _echo("I placed order 102938 ten days ago and got nothing so far", "102938"),
        _rest("I want to speak with a human being please", "agents"),
        _rest("Are you open on Sundays?", "Monday to Saturday"),
        _number("What's the number of my order?", "102938"),
        _unknown("What's the capital of Mongolia?"),
    ),
    (
        _rest("I would like to give the umbrella back, it is too short", "umbrella"),
        _rest("ok great", "help"),
        _rest("can i pay by card?", "credit card"),
        _rest("I can't remember my password", "password"),
        _unknown("what do you think about football?"),
    ),
    (
        _echo("Hi, this is Yannick, where is order 65004?", "Yannick", "65004"),
        _name("who am i?", "Yannick"),
        _rest("I moved to a new flat, how can I change my address?", "Settings"),
        _number("remind me of my order number", "65004"),
        _rest("Thank you so much for your help!", "welcome"),
    ),
)
