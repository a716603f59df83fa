"""Which tail probability says that a release is surprising."""

from noisewise.diagnostics.surprise import whole_release


def test_the_whole_release_decides_and_not_the_most_surprising_of_its_parts():
    assert whole_release({"a": 0.001, "b": 0.7, "release": 0.4}) == ("release", 0.4)
    assert whole_release({"a": 0.03}) == ("a", 0.03)
