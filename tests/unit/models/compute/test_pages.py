import random

import pytest

from models.compute.pages import PagePool, Sharing


def tokens(count, seed=0):
    return [random.Random(seed).randrange(1000) for _ in range(count)]


ANN, BOB = Sharing("", "ann", 0), Sharing("", "bob", 0)


def filled(pool, ids, sharing=ANN):
    pages = pool.allocate(-(-len(ids) // pool.size))
    publish(pool, ids, pages, sharing)
    return pages


def publish(pool, ids, pages, sharing):
    node = sharing.start
    for at, page in enumerate(pages[: len(ids) // pool.size]):
        before = sharing.before(at, pool.size, node)
        node = pool.publish(before, ids[at * pool.size : (at + 1) * pool.size], page)


def test_page_zero_is_never_given_out_and_no_page_twice():
    pool = PagePool(10, 4)
    assert sorted(pool.allocate(9)) == list(range(1, 10))
    assert pool.allocate(1) is None


def test_a_prefix_is_found_up_to_the_last_full_page_that_is_alike():
    pool = PagePool(20, 4)
    pages = filled(pool, tokens(18))
    found, _ = pool.match(ANN, tokens(18))
    assert found == pages[:4]
    other = [*tokens(18)[:9], 5555, *tokens(18)[10:]]
    assert pool.match(ANN, other)[0] == pages[:2]
    assert pool.match(BOB, tokens(18))[0] == []


@pytest.mark.parametrize(("shared", "pages"), [(0, 0), (3, 0), (4, 1), (11, 2), (12, 3), (99, 4)])
def test_users_share_the_pages_of_the_shared_tokens_and_no_other(shared, pages):
    pool = PagePool(20, 4)
    filled(pool, tokens(18), Sharing("", "ann", shared))
    assert len(pool.match(Sharing("", "bob", shared), tokens(18))[0]) == pages
    assert len(pool.match(Sharing("", "ann", shared), tokens(18))[0]) == 4
    assert pool.match(Sharing("tuned", "ann", shared), tokens(18))[0] == []


def test_the_same_tokens_after_another_beginning_are_another_page():
    pool = PagePool(20, 4)
    filled(pool, [1, 1, 1, 1, 9, 9, 9, 9])
    assert len(pool.match(ANN, [2, 2, 2, 2, 9, 9, 9, 9])[0]) == 0


def test_pages_that_nobody_holds_are_found_again_until_their_memory_is_needed_the_end_first():
    pool = PagePool(6, 4)
    pages = filled(pool, tokens(16))
    pool.release(pages)
    assert pool.available == 5
    found, _ = pool.match(ANN, tokens(16))
    assert found == pages
    pool.release(found)
    pool.allocate(3)  # one is free, two are evicted
    assert pool.match(ANN, tokens(16))[0] == pages[:2]
    pool.check()


def test_the_least_recently_used_sequence_is_evicted_first():
    pool = PagePool(9, 4)
    first, second = filled(pool, tokens(16, 1)), filled(pool, tokens(16, 2))
    pool.release(first)
    pool.release(second)
    pool.release(pool.match(ANN, tokens(16, 1))[0])
    pool.allocate(4)
    assert pool.match(ANN, tokens(16, 1))[0] == first
    assert pool.match(ANN, tokens(16, 2))[0] == []


def test_a_page_with_two_holders_survives_the_first_release():
    pool = PagePool(6, 4)
    pages = filled(pool, tokens(8))
    again, _ = pool.match(ANN, tokens(8))
    assert pool.release(pages) == []
    assert pool.in_use == 2
    assert pool.release(again) == pages[::-1]
    assert pool.in_use == 0


def test_what_is_forgotten_is_not_found():
    pool = PagePool(6, 4)
    pages = filled(pool, tokens(16))
    pool.release(pages, forget=True)
    assert pool.match(ANN, tokens(16))[0] == []
    pool.check()


def test_the_same_page_computed_twice_is_published_once():
    pool = PagePool(6, 4)
    first, second = filled(pool, tokens(8)), filled(pool, tokens(8))
    assert pool.match(ANN, tokens(8))[0] == first
    pool.release(second)
    assert pool.available == 3
    pool.check()


@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_random_operations_lose_no_page(seed):
    chance = random.Random(seed)
    pool = PagePool(40, 4)
    held = []
    for _ in range(1000):
        if held and chance.random() < 0.5:
            pool.release(held.pop(chance.randrange(len(held))), forget=chance.random() < 0.1)
        else:
            ids = [1] * chance.randrange(30) + [chance.randrange(3) for _ in range(chance.randrange(30))]
            sharing = chance.choice((ANN, BOB, Sharing("", "ann", 9), Sharing("", "bob", 9)))
            found, node = pool.match(sharing, ids)
            more = pool.allocate(len(ids) // 4 - len(found))
            if more is None:
                pool.release(found)
                continue
            for at, page in enumerate(more, len(found)):
                node = pool.publish(sharing.before(at, 4, node), ids[at * 4 : at * 4 + 4], page)
            held.append(found + more)
        pool.check()
    for pages in held:
        pool.release(pages)
    pool.check()
    assert pool.in_use == 0


def test_books_that_do_not_add_up_are_told():
    pool = PagePool(6, 4)
    pages = pool.allocate(2)
    pool.release(pages)
    pool._holders[pages[0]] = 1
    with pytest.raises(AssertionError, match="two places"):
        pool.check()
    pool._holders[pages[0]] = 0
    pool._free.remove(pages[0])
    with pytest.raises(AssertionError, match="lost"):
        pool.check()
