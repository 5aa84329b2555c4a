import random

import pytest

from models.compute.pages import PagePool
from models.engine.scheduler import Scheduler, StepLimits
from models.engine.sequence import SequenceState
from models.interface.generation import Job, JobPriority
from models.interface.prompt_order import PROMPTS_PER_S
from models.interface.token_stream import TokenStream

PAGE = 4


class Steps:
    """A scheduler whose steps compute nothing: every sequence that draws gets token 0."""

    def __init__(self, pages=200, **limits):
        self.now = 0.0
        self.pool = PagePool(pages, PAGE)
        self.scheduler = Scheduler(self.pool, StepLimits(**limits), lambda: self.now)
        self.count = 0
        self.ended = []
        self.charged = {}

    def add(self, name, prompt=4, answer=4, **fields):
        self.count += 1
        # prompts are all different, or they would share pages
        ids = tuple(self.count * 1000 + n for n in range(prompt))
        job = Job(name, ids, answer, **fields)
        sequence = SequenceState(job, TokenStream(lambda *_: None), self.count, self.now, 1 << 20)
        self.scheduler.add(sequence)
        return sequence

    def step(self):
        slices = self.scheduler.schedule()
        for part in slices:
            assert part.start == part.sequence.computed
            assert len(part.sequence.pages) * PAGE >= part.start + part.count
            part.sequence.advance(part.count, self.pool)
            if part.draws or part.sequence.pending == 0:
                part.sequence.tokens.append(0)
                if len(part.sequence.tokens) >= part.sequence.limit:
                    self.scheduler.remove(part.sequence)
                    self.ended.append(part.sequence.job.id)
        self.pool.check()
        return slices

    def run(self, steps=2000):
        for _ in range(steps):
            if not self.step():
                break
        return self.ended


def test_rows_that_decode_come_first_and_prompts_share_what_is_left():
    steps = Steps(chunk=10, lone_chunk=64)
    short = steps.add("short")
    steps.step()
    long = steps.add("long", prompt=25)
    assert [(part.sequence, part.count) for part in steps.step()] == [(short, 1), (long, 10)]
    assert [(part.sequence, part.count) for part in steps.step()] == [(short, 1), (long, 10)]
    assert [(part.sequence, part.count) for part in steps.step()] == [(short, 1), (long, 5)]


def test_a_users_long_prompts_do_not_delay_anothers_short_one():
    steps = Steps(pages=2000, chunk=10, lone_chunk=64)
    long = [steps.add(f"a{n}", prompt=500, user="a") for n in range(8)]
    steps.step()
    steps.now = 0.5
    short = steps.add("b", prompt=20, user="b")
    assert [(part.sequence, part.count) for part in steps.step()] == [(short, 20), (long[0], 44)]


def test_a_tenants_long_prompts_delay_its_users_by_their_own_share_too():
    steps = Steps(pages=2000, chunk=10, lone_chunk=64)
    for n in range(8):
        steps.add(f"a{n}", prompt=500, tenant="acme", user="a")
    own = steps.add("own", prompt=20, tenant="acme", user="b")
    other = steps.add("other", prompt=20, tenant="umbrella", user="b")
    assert [part.sequence for part in steps.step()][:2] == [other, own]


def test_a_long_prompt_is_overtaken_for_a_while_only():
    steps = Steps(pages=2000, chunk=10, lone_chunk=50)
    long = steps.add("long", prompt=2000, answer=1, user="a")

    def go_on(until):
        while steps.now < until:
            steps.add(f"b{steps.count}", prompt=50, answer=1, user=f"b{steps.count}")
            steps.step()
            steps.now += 0.02

    go_on(0.9 * 2000 / PROMPTS_PER_S)
    assert long.computed <= 100
    go_on(2 * 2000 / PROMPTS_PER_S)
    assert "long" in steps.ended


def test_a_lone_prompt_is_not_cut_where_nobody_would_wait():
    steps = Steps(chunk=10, lone_chunk=64)
    steps.add("long", prompt=60)
    assert [part.count for part in steps.step()] == [60]


def test_no_more_rows_run_than_may():
    steps = Steps(max_running=3)
    for n in range(7):
        steps.add(str(n))
    while steps.step():
        assert len(steps.scheduler.running) <= 3
    assert sorted(steps.ended) == list("0123456")


def test_higher_priority_goes_first():
    steps = Steps(max_running=1)
    steps.add("batch", priority=JobPriority.BATCH)
    steps.add("standard")
    steps.add("interactive", priority=JobPriority.INTERACTIVE)
    assert steps.run() == ["interactive", "standard", "batch"]


def test_who_waits_long_enough_climbs():
    steps = Steps(max_running=1, aging_s=5.0)
    steps.add("old", priority=JobPriority.BATCH, user="a")
    steps.now = 11.0
    steps.add("new", priority=JobPriority.INTERACTIVE, user="b")
    assert steps.run() == ["old", "new"]


def test_a_users_hundred_requests_do_not_delay_anothers_one():
    steps = Steps(max_running=2)
    for n in range(100):
        steps.add(f"a{n}", user="a")
    steps.add("b", user="b")
    steps.run()
    assert steps.ended.index("b") <= 2


def test_a_users_long_answers_leave_a_place_for_anothers_one():
    steps = Steps(max_running=8)
    for n in range(20):
        steps.add(f"a{n}", answer=100, user="a")
    for _ in range(10):
        steps.step()
    assert len(steps.scheduler.running) == 6
    steps.add("b", user="b")
    for _ in range(5):
        steps.step()
    assert steps.ended == ["b"]


def test_a_tenants_users_leave_a_place_for_another_tenants():
    steps = Steps(max_running=8)
    for n in range(20):
        steps.add(f"a{n}", answer=100, tenant="a", user=str(n))
    for _ in range(10):
        steps.step()
    steps.add("b", tenant="b", user="1")
    for _ in range(5):
        steps.step()
    assert steps.ended == ["b"]


def test_the_next_step_is_certain_although_somebody_waits_who_has_had_his_share():
    steps = Steps(max_running=4)
    for n in range(4):
        steps.add(f"a{n}", answer=100, user="a")
    steps.step()
    slices = steps.scheduler.schedule()
    assert len(steps.scheduler.waiting) == 1
    assert steps.scheduler.advance(slices) is not None
    steps.add("b", user="b")
    assert steps.scheduler.advance(slices) is None


def test_for_another_users_row_the_newest_of_the_user_with_the_most_memory_yields():
    steps = Steps(pages=41, headroom=4)
    long = [steps.add(f"a{n}", prompt=16, answer=40, user="a") for n in range(4)]
    small = steps.add("c", prompt=4, answer=60, user="c")
    while steps.pool.available > 2:
        steps.step()
    assert [sequence in steps.scheduler.running for sequence in long] == [True, True, False, False]
    other = steps.add("b", prompt=12, answer=4, user="b")
    steps.step()
    assert other in steps.scheduler.running, "those of the other user that wait as well do not fit, and do not delay it"
    assert small in steps.scheduler.running
    assert [sequence in steps.scheduler.running for sequence in long] == [True, False, False, False]
    steps.run()
    assert sorted(steps.ended) == ["a0", "a1", "a2", "a3", "b", "c"]
    assert [len(sequence.tokens) for sequence in long] == [56] * 4


def test_a_row_whose_user_holds_as_much_waits_for_memory():
    steps = Steps(pages=41, headroom=4)
    for user in "abcd":
        steps.add(user, prompt=16, answer=40, user=user)
    while steps.pool.available > 2:
        steps.step()
    steps.add("e", prompt=16, answer=4, user="e")
    steps.step()
    assert steps.scheduler.preempted == 0
    assert len(steps.scheduler.waiting) == 1


def test_no_answer_yields_to_work_in_batches():
    steps = Steps(pages=41, headroom=4)
    for n in range(4):
        steps.add(f"a{n}", prompt=16, answer=40, user="a")
    while steps.pool.available > 2:
        steps.step()
    steps.add("b", prompt=12, answer=4, user="b", priority=JobPriority.BATCH)
    steps.step()
    assert steps.scheduler.preempted == 0


def test_who_holds_far_more_yields_whatever_priority_it_gives_itself():
    steps = Steps(pages=41, headroom=4)
    for n in range(20):
        steps.add(f"a{n}", prompt=16, answer=40, user="a", priority=JobPriority.INTERACTIVE)
    while steps.pool.available > 2:
        steps.step()
    steps.add("b", prompt=12, answer=4, user="b")
    for _ in range(5):
        steps.step()
    assert steps.ended == ["b"]


def test_where_memory_runs_out_it_is_not_taken_from_who_holds_far_less():
    steps = Steps(pages=41, headroom=0)
    for n in range(3):
        steps.add(f"a{n}", prompt=16, answer=60, user="a", priority=JobPriority.INTERACTIVE)
    other = steps.add("b", prompt=4, answer=40, user="b")
    while not steps.scheduler.preempted:
        steps.step()
    assert other in steps.scheduler.running
    steps.run()
    assert sorted(steps.ended) == ["a0", "a1", "a2", "b"]


def test_a_lone_long_row_is_not_sacrificed():
    steps = Steps(pages=41, headroom=4)
    long = steps.add("a", prompt=140, answer=20, user="a")
    while steps.pool.available > 2:
        steps.step()
    steps.add("b", prompt=12, answer=4, user="b")
    steps.step()
    assert steps.scheduler.running == [long]
    assert sorted(steps.run()) == ["a", "b"]


def test_long_prompts_delay_others_whatever_priority_they_have_by_a_class_at_most():
    steps = Steps(pages=2000, chunk=10, lone_chunk=64)
    for n in range(8):
        steps.add(f"a{n}", prompt=500, user="a", priority=JobPriority.INTERACTIVE)
    short = steps.add("b", prompt=20, user="b")
    assert steps.step()[0].sequence is short


def test_tenants_get_equal_shares_whatever_the_number_of_their_users():
    steps = Steps(max_running=2)
    for n in range(60):
        steps.add(f"big{n}", tenant="big", user=str(n))
        steps.add(f"small{n}", tenant="small", user="only")
    steps.run()
    first = [name[:3] for name in steps.ended[:40]]
    assert abs(first.count("big") - first.count("sma")) <= 4


def test_a_user_that_comes_back_has_saved_nothing_up():
    steps = Steps(max_running=1)
    for n in range(20):
        steps.add(f"a{n}", user="a")
    for _ in range(60):
        steps.step()
    for n in range(10):
        steps.add(f"b{n}", user="b")
    done = len(steps.ended)
    steps.run()
    after = [name[0] for name in steps.ended[done : done + 8]]
    assert 3 <= after.count("a") <= 5


def test_a_row_is_admitted_only_with_memory_for_its_prompt_and_the_answers_next_tokens():
    steps = Steps(pages=21, headroom=8)
    first = steps.add("first", prompt=40, answer=8)
    second = steps.add("second", prompt=40, answer=8)
    steps.step()
    assert steps.scheduler.running == [first]
    assert second.pages == []
    assert steps.run() == ["first", "second"]


def test_a_row_that_is_not_admitted_costs_nobody_a_page_that_may_be_found_again():
    steps = Steps(pages=21, headroom=0)
    steps.add("past", prompt=24, answer=1)
    steps.run()
    steps.add("first", prompt=24, answer=24)
    steps.step()
    kept = set(steps.pool._kept)
    steps.add("large", prompt=56, answer=4)
    steps.step()
    assert kept
    assert set(steps.pool._kept) == kept


def test_where_memory_runs_out_the_least_important_row_is_computed_again():
    steps = Steps(pages=16, headroom=0)
    sequences = [steps.add("old", prompt=8, answer=30), steps.add("new", prompt=8, answer=30)]
    batch = steps.add("batch", prompt=8, answer=30, priority=JobPriority.BATCH)
    steps.run()
    assert steps.scheduler.preempted > 0
    assert steps.ended[0] == "old"
    assert sorted(steps.ended) == ["batch", "new", "old"]
    assert [len(sequence.tokens) for sequence in (*sequences, batch)] == [38] * 3
    assert steps.pool.in_use == 0


def test_what_a_preempted_row_computed_is_found_again_where_it_still_lies_there():
    steps = Steps(pages=16, headroom=0)
    steps.add("old", prompt=8, answer=30)
    steps.add("new", prompt=8, answer=30)
    computed = sum(part.count for _ in range(300) for part in steps.step())
    assert steps.scheduler.preempted > 0
    assert computed < 2 * 37 + steps.scheduler.preempted * 37


@pytest.mark.parametrize("seed", range(8))
def test_every_row_ends_whatever_the_order_and_no_page_is_lost(seed):
    chance = random.Random(seed)
    steps = Steps(
        pages=chance.randrange(25, 60),
        headroom=chance.choice([0, 4, 16]),
        chunk=chance.choice([3, 8, 30]),
        lone_chunk=40,
        max_running=chance.choice([1, 3, 10]),
        aging_s=0.5,
    )
    sequences, cancelled = [], 0
    for _ in range(300):
        steps.now += 0.01
        if chance.random() < 0.3:
            sequences.append(
                steps.add(
                    str(len(sequences)),
                    chance.randrange(1, 60),
                    chance.randrange(1, 30),
                    priority=chance.choice(list(JobPriority)),
                    user=chance.choice("abc"),
                    tenant=chance.choice(["", "acme"]),
                )
            )
        if chance.random() < 0.05 and (
            open_sequences := [sequence for sequence in sequences if sequence.job.id not in steps.ended]
        ):
            sequence = chance.choice(open_sequences)
            steps.scheduler.remove(sequence)
            steps.ended.append(sequence.job.id)
            cancelled += 1
        steps.step()
    steps.run()
    assert sorted(map(int, steps.ended)) == list(range(len(sequences)))
    assert steps.pool.in_use == 0
    assert not steps.scheduler.waiting
    assert (steps.scheduler._places.free, not steps.scheduler._places._held) == (
        steps.scheduler.limits.max_running,
        True,
    )


@pytest.mark.parametrize("seed", range(20))
def test_no_row_is_preempted_in_vain(seed):
    """Each row that is preempted for a waiting one lets that one join, so a step preempts few."""
    chance = random.Random(seed)
    pages, running = chance.choice([41, 61, 101]), chance.choice([4, 8, 16])
    steps = Steps(pages, headroom=chance.choice([4, 16]), chunk=16, lone_chunk=64, max_running=running)
    for _ in range(300):
        if chance.random() < 0.25 and steps.count < 60:
            user = chance.choice("aaabcd")
            is_long = user == "a" and chance.random() < 0.3
            prompt = chance.randrange(80, 120) if is_long else chance.randrange(4, 40)
            priority = chance.choice([JobPriority.INTERACTIVE, JobPriority.STANDARD])
            steps.add(str(steps.count), prompt, chance.randrange(4, 40), user=user, priority=priority)
        before = steps.scheduler.preempted
        steps.step()
        steps.now += 0.03
        assert steps.scheduler.preempted - before <= running
    assert len(steps.run()) == steps.count


def test_a_long_answer_is_not_preempted_for_each_short_one():
    steps = Steps(pages=101, headroom=8, chunk=16, lone_chunk=64, max_running=16)
    steps.add("long", prompt=160, answer=120, user="a")
    count = 0
    while "long" not in steps.ended:
        while len(steps.scheduler.waiting) < 6:
            steps.add(f"b{steps.count}", prompt=8, answer=60, user=f"b{steps.count}")
        steps.step()
        steps.now += 0.03
        count += 1
    assert count < 200, "it was computed anew"


def test_a_tenants_user_leaves_places_for_the_tenants_others():
    steps = Steps(max_running=16)
    for n in range(20):
        steps.add(f"a{n}", answer=100, tenant="acme", user="a")
    for _ in range(10):
        steps.step()
    steps.add("b", tenant="acme", user="b")
    for _ in range(5):
        steps.step()
    assert steps.ended == ["b"]


def test_the_step_behind_is_that_of_the_same_rows_one_token_further():
    steps = Steps()
    sequences = [steps.add("a", prompt=4), steps.add("b", prompt=9)]
    slices = steps.scheduler.schedule()
    found = steps.scheduler.advance(slices)
    assert [(part.sequence, part.start, part.count, part.draws) for part in found] == [
        (sequence, len(sequence.tokens), 1, True) for sequence in sequences
    ]
    assert all(len(sequence.pages) * PAGE > len(sequence.tokens) for sequence in sequences)


def test_no_step_is_foreseen_while_somebody_could_join_or_has_more_of_a_prompt():
    steps = Steps(chunk=10, max_running=3)
    steps.add("decodes", answer=40)
    steps.step()
    steps.add("long", prompt=25, answer=40)
    assert steps.scheduler.advance(steps.scheduler.schedule()) is None, "its next chunk is not drawn"
    while steps.scheduler.running[-1].pending > 1:
        steps.step()
    assert steps.scheduler.advance(steps.scheduler.schedule()) is not None
    slices = steps.scheduler.schedule()
    steps.add("joins")
    assert steps.scheduler.advance(slices) is None
    steps.step()
    steps.add("waits for a place")
    assert steps.scheduler.advance(steps.scheduler.schedule()) is not None


def test_a_row_that_no_step_computes_is_not_passed_over_by_one_that_is_started_ahead():
    steps = Steps(chunk=4)
    steps.add("decodes", answer=40)
    steps.step()
    for name in "ab":
        steps.add(name, prompt=4)
    slices = steps.scheduler.schedule()
    assert len(slices) == 2 < len(steps.scheduler.running)
    assert steps.scheduler.advance(slices) is None


def test_no_step_is_foreseen_that_would_cost_a_row_its_pages():
    steps = Steps(pages=3)
    steps.add("a", prompt=4)
    slices = steps.scheduler.schedule()
    taken = steps.pool.allocate(steps.pool.available)
    assert steps.scheduler.advance(slices) is None
    steps.pool.release(taken)
    assert steps.scheduler.advance(slices) is not None
