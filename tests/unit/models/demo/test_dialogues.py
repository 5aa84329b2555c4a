from __future__ import annotations

import itertools

import pytest

from tests.demo_model import words
from tests.demo_model.customer import Skill
from tests.demo_model.dialogues import Dialogue, Split, dialogues, held_out
from tests.demo_model.examples import COUNTS, lines

COUNT = 1500


@pytest.fixture(scope="module")
def training() -> list[Dialogue]:
    return list(itertools.islice(dialogues(0, Split.TRAINING), COUNT))


@pytest.fixture(scope="module")
def unseen() -> list[Dialogue]:
    return held_out(0, COUNT)


def texts_of(dialogue: Dialogue) -> tuple[str, ...]:
    return tuple(turn.user for turn in dialogue.turns)


def test_a_seed_gives_the_same_dialogues_every_time(training: list[Dialogue]) -> None:
    assert list(itertools.islice(dialogues(0, Split.TRAINING), COUNT)) == training


def test_another_seed_gives_other_dialogues(training: list[Dialogue]) -> None:
    other = {texts_of(dialogue) for dialogue in itertools.islice(dialogues(1, Split.TRAINING), COUNT)}
    assert len(other & {texts_of(dialogue) for dialogue in training}) < COUNT / 20


def test_training_and_held_out_dialogues_share_none(training: list[Dialogue], unseen: list[Dialogue]) -> None:
    assert not {texts_of(dialogue) for dialogue in training} & {texts_of(dialogue) for dialogue in unseen}
    assert {dialogue.split for dialogue in training} == {Split.TRAINING}
    assert {dialogue.split for dialogue in unseen} == {Split.HELD_OUT}


def test_names_and_things_are_held_out_too() -> None:
    assert not set(words.SEEN.names) & set(words.UNSEEN.names)
    assert not set(words.SEEN.items) & set(words.UNSEEN.items)


def test_no_held_out_name_is_ever_told_in_training(training: list[Dialogue]) -> None:
    values = {
        word for dialogue in training for turn in dialogue.turns for value in turn.values for word in value.split()
    }
    assert not values & {*words.UNSEEN.names, *words.UNSEEN.items}


def test_what_an_answer_copies_was_said_before(training: list[Dialogue], unseen: list[Dialogue]) -> None:
    for dialogue in [*training, *unseen]:
        for at, turn in enumerate(dialogue.turns):
            before = " ".join(message["content"] for message in dialogue.messages(at)).lower()
            assert all(value.lower() in before for value in turn.values), dialogue
            assert all(value in turn.answer for value in turn.values), dialogue


def test_every_wording_is_filled_in(training: list[Dialogue]) -> None:
    for dialogue in training:
        assert not set("[]{}|") & set("".join(texts_of(dialogue)) + dialogue.system), dialogue


def test_dialogues_show_every_skill_with_and_without_a_system_prompt(unseen: list[Dialogue]) -> None:
    assert {skill for dialogue in unseen for skill in dialogue.skills} == set(Skill)
    assert {bool(dialogue.system) for dialogue in unseen} == {True, False}


def test_some_type_in_lower_case_and_without_punctuation(unseen: list[Dialogue]) -> None:
    lines = [turn.user for dialogue in unseen for turn in dialogue.turns if turn.skill is Skill.ECHO]
    assert 0.1 < sum(line == line.lower() for line in lines) / len(lines) < 0.6
    assert 0.1 < sum(line[-1] not in ".?!" for line in lines) / len(lines) < 0.7


def test_the_dialogues_that_come_with_the_model_are_the_generators() -> None:
    assert {path: path.read_text() for path in COUNTS} == {path: lines(*which) for path, which in COUNTS.items()}
