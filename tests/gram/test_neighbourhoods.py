"""What the search for neighbours takes."""

from cagp_dist.gram.neighbourhoods import least_bytes


def test_more_of_anything_takes_more_bytes():
    few = {"n": 10**5, "q": 10**5, "p": 3, "fields": 2, "neighbours": 64, "coarse": 32, "workers": 2}

    def bytes_of(sizes):
        keywords = {name: sizes[name] for name in ("neighbours", "coarse", "workers")}
        return least_bytes(*(sizes[name] for name in ("n", "q", "p", "fields")), **keywords).total

    for name, size in few.items():
        assert bytes_of({**few, name: 2 * size}) > bytes_of(few), name
    assert bytes_of(few) > 8 * 3 * 2 * 10**5  # points and targets themselves
