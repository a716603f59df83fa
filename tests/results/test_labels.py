"""What scalars are called: one rule for tables, pictures and messages."""

import numpy as np

from noisewise.results.labels import by_name, label_of, labels_of, owner_of, place_of


def test_a_single_number_is_called_by_its_name():
    assert label_of("theta", ()) == "theta"
    assert labels_of("theta", ()) == ["theta"]


def test_entries_are_named_in_the_order_of_a_flattened_array():
    assert label_of("rate", (2,)) == "rate[2]"
    assert labels_of("table", (2, 2)) == ["table[0,0]", "table[0,1]", "table[1,0]", "table[1,1]"]
    assert labels_of("none", (0,)) == []


def test_a_label_says_whose_entry_it_is_and_which():
    assert (owner_of("theta"), place_of("theta")) == ("theta", "")
    assert (owner_of("rate[Bronx]"), place_of("rate[Bronx]")) == ("rate", "Bronx")
    assert (owner_of("table[0,[b]]"), place_of("table[0,[b]]")) == ("table", "0,[b]")


def test_scalars_in_a_row_go_back_to_their_names():
    shapes = {"theta": (), "table": (2, 2)}
    found = by_name(np.arange(5.0), shapes)
    assert found["theta"] == 0.0
    assert found["table"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
