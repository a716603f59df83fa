"""Confidential values as states of Markov chains given the release and the parameters: the records behind a `Total`.

Records simulated whole have weight only where their total happens to fall near the release. A chain replaces them one
at a time instead (Ju, Awan, Gong and Rao 2022), so that its total stays there however small the noise. Chains begin
anew in every E-step and run side by side: their independence gives the errors. Derivation:
docs/derivations/likelihood.md. Measured tables, which move along integer directions, are in
table_chains.py.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import stdtrit

from noisewise.errors import Place, refusal
from noisewise.inference.blocks import Columns
from noisewise.inference.problem import Problem
from noisewise.inference.record_steps import RecordSteps, why_not_in_steps
from noisewise.likelihood.e_step.cloud import Cloud
from noisewise.likelihood.e_step.released_law import traits_of
from noisewise.likelihood.e_step.simulated_records import MOST_NUMBERS, SimulatedRecords
from noisewise.likelihood.e_step.sufficient import FAMILIES
from noisewise.likelihood.instead import SAMPLE
from noisewise.model.masses import formula
from noisewise.numerics import Array, Compiled, Values

CHAINS = (16, 64)
"""Fewest and most chains side by side: errors rest on as many independent groups."""
SIDE_BY_SIDE = 2**22
"""Numbers that the records of all chains side by side may hold."""
BURN = 10.0
"""Times that every record is replaced, on average, before a state counts: e^-10 of the start is left."""
PATIENCE = 512
"""Most sweeps before states count. If records were replaced too seldom by then, the states are no measurement."""
STRETCH = 256
"""Most states that one chain gives: more states come from more chains."""
FEWEST = 256
"""States that there is always room for, and sets of records by which a likelihood is estimated."""
MOST_HELD = 2**25
"""Numbers that the fewest states may hold."""
SIMULATED = 2**26
"""Numbers drawn to estimate a likelihood."""
LONG, LASTING = 64, 10.0
"""A chain of a measurement is looked at in `LONG` states, which must be worth at least `LASTING` independent ones.

A chain that stays where its beginning led it, because records hardly ever change places, is worth one or a few. It does
not drift, so only this shows that its mean is still that of the beginnings.
"""
FALSE_ALARM = 1e-6


class Chained(ABC):
    """A part of the likelihood whose confidential values are states of Markov chains."""

    name: str
    chains: int
    """Chains side by side."""
    what: ClassVar[str]
    """What the chains run over."""

    @property
    @abstractmethod
    def numbers(self) -> int:
        """Numbers that one state takes."""

    @property
    @abstractmethod
    def simulated_numbers(self) -> int:
        """Numbers drawn to simulate one state whole."""

    @property
    @abstractmethod
    def room(self) -> int:
        """Most states that an E-step may hold, or have the time for."""

    @abstractmethod
    def begin(self, rng: np.random.Generator, given: Values) -> Any:
        """The state of all chains at their beginning; `given` has the parameters, once for every chain."""

    @abstractmethod
    def sweep_of(self, rng: np.random.Generator, state: Any, given: Values) -> tuple[Any, float]:
        """The state after one sweep, and how often everything was replaced in it, on average."""

    @abstractmethod
    def look_at(self, values: Values, state: Any) -> tuple[Array, Array]:
        """What is kept of a state, (chains, ...), and the numbers by which chains are watched, (chains, numbers)."""

    def blocks(self, size: int) -> tuple[int, int]:
        """Blocks of chains that give about `size` states, and the states of each chain."""
        each = max(1, round(size / self.chains))
        longest = max(1, min(STRETCH, MOST_NUMBERS // (4 * self.chains * self.numbers)))
        blocks = math.ceil(each / longest)
        return blocks, math.ceil(each / blocks)

    def run_chains(
        self,
        rng: np.random.Generator,
        values: Values,
        states: int,
        poll: Callable[[], None],
        burn: float = BURN,
        looks: int = 1,
    ) -> Columns:
        """Run the chains from their beginning, and return the columns "s", "seen" and "burnt".

        "s" holds `states` states of every chain; "seen" the watched numbers, at `looks` looks for each of these states;
        "burnt" whether everything was replaced often enough before the first. Between two looks there are as many
        sweeps as replace everything once on average. That number comes from the sweeps before the first look and is
        fixed from then on, so that no state is kept or left out because of what it is.
        """
        chains = self.chains
        given = {name: np.broadcast_to(one, (chains, *np.shape(one))) for name, one in values.items()}
        state = self.begin(rng, given)
        replaced, sweeps = 0.0, 0
        while replaced < burn and sweeps < PATIENCE:
            poll()
            state, share = self.sweep_of(rng, state, given)
            replaced, sweeps = replaced + share, sweeps + 1
        between = math.ceil(sweeps / max(replaced, 1.0)) if sweeps else 1
        states_kept, seen = [], []
        for _ in range(states):
            looked = []
            for _ in range(looks):
                for _ in range(between):
                    poll()
                    state, _ = self.sweep_of(rng, state, given)
                s, watched = self.look_at(values, state)
                looked.append(watched)
            states_kept.append(s)
            seen.append(np.stack(looked, axis=1))
        burnt = np.full(states * chains, replaced >= burn)
        return {"s": np.concatenate(states_kept), "seen": np.concatenate(seen), "burnt": burnt}

    def looks(self, states: int) -> int:
        """How often chains of a measurement are looked at for every state that is kept."""
        return math.ceil(LONG / states)

    def cloud(self, columns: Columns, states: int) -> Cloud:
        """The cloud of all states, from blocks in which each chain gave `states` of them."""
        s, seen = columns["s"], columns["seen"]
        weights = np.full((len(s), 1), 1.0 / len(s))
        looks, numbers = seen.shape[1:]
        seen = np.moveaxis(seen.reshape(-1, states, self.chains, looks, numbers), 3, 2)
        every = seen.reshape(-1, states * looks, self.chains, numbers)
        rest = bool(columns["burnt"].all()) and bool(np.isfinite(seen).all()) and not drifts(every) and lasts(every)
        return Cloud(s, weights, np.zeros(1), groups=self.chains, worth=worth(seen[:, :, -1]), at_rest=rest)

    def sets(self, most: int) -> int:
        """How many values are simulated whole to estimate the likelihood."""
        return max(FEWEST, min(most, SIMULATED // self.simulated_numbers))


class Augmented(SimulatedRecords, Chained):
    """The records behind one released total as states of Markov chains.

    A state is all n records; or, where every law that names a parameter is an exponential family, two values of each
    such field with the same sufficient statistics, each standing for n / 2 records.
    """

    what = "records"

    def __init__(self, problem: Problem, name: str) -> None:
        super().__init__(problem, name)
        width = sum(max(1, math.prod(law.form.shape)) for law in self.laws.values())
        self.chains = power_of_two(min(CHAINS[1], SIDE_BY_SIDE // (self.n * width)))
        families = {field: self._family(field) for field in self.fitted}
        self.families = {field: family for field, family in families.items() if family is not None}
        self.by_sums = bool(self.fitted) and len(self.families) == len(self.fitted)
        if self.by_sums:
            self.shape = (2, sum(self.widths[field] for field in self.fitted))
        most = SIDE_BY_SIDE // (CHAINS[0] * width)
        if not self.by_sums:
            most = min(most, MOST_HELD // (FEWEST * self.shape[1]))
        if self.n > most:
            rule = f"must have at most {most} records to be augmented"
            raise refusal("fit", Place.of("statistics", name), rule, self.n, "Use nw.sample.", instead=(SAMPLE,))
        if reason := _unfit(problem, name):
            raise refusal("MCEM", "e_step", reason, "augmented", "Leave it out, or use nw.sample.", instead=(SAMPLE,))
        self.steps = RecordSteps(problem, name)

    def _refuse_too_many(self) -> None:
        """Not here: how many records there may be depends on what is kept of them, which `__init__` decides."""

    def _family(self, field: str) -> Any:
        """How a field's sufficient statistics become values, or None."""
        law = self.laws[field]
        if law.inner:
            return None
        structs = {name: jax.ShapeDtypeStruct(self.model.shape(name), float) for name in law.outer}
        return FAMILIES.get(traits_of(law.function, structs)[0])

    @property
    def room(self) -> int:
        """Most states that an E-step may hold, or have the time for."""
        return max(FEWEST, min(MOST_NUMBERS // self.numbers, 4 * MOST_NUMBERS // self.n))

    def compiled(self, purpose: str, build: Callable[[], Callable[..., Any]]) -> Compiled:
        """A program of this part, kept on the model."""
        return self.model.compiled.setdefault((purpose, self.name, "augmented"), Compiled(build))

    # States -------------------------------------------------------------------------------------------------------

    def state_of(self, fields: Values) -> Array:
        """What is kept of records given by field, (rows, n, ...)."""
        if not self.by_sums:
            rows = len(next(iter(fields.values())))
            return np.concatenate(
                [np.asarray(fields[one], float).reshape(rows, self.n, -1) for one in self.fields_used], 2
            )
        pieces = []
        for field, family in self.families.items():
            x = np.asarray(fields[field], float).reshape(-1, self.n, self.widths[field])
            with np.errstate(divide="ignore", invalid="ignore"):
                points = family(lambda function, x=x: np.mean(function(x), axis=1, keepdims=True))
            pieces.append(np.concatenate([points[0], points[-1]], axis=1))
        return np.concatenate(pieces, axis=2)

    def log_prob(self, values: Values, s: Any, place: Any) -> Any:
        """The sum of the records' log densities, up to a constant in the parameters; traceable."""
        if not self.by_sums:
            return super().log_prob(values, s, place)
        total, start = jnp.zeros(()), 0
        for field in self.families:
            law, form = self.laws[field], self.laws[field].form
            points = s[:, start : start + self.widths[field]].reshape((2, *form.shape))
            start += self.widths[field]
            made = law.function(**{name: values[name] for name in law.outer})
            each = jax.vmap(lambda x, made=made: jnp.sum(formula(made, x)))(points)
            total = total + 0.5 * self.n * jnp.sum(each)
        return total.reshape(1)

    # Chains -------------------------------------------------------------------------------------------------------

    def begin(self, rng: np.random.Generator, given: Values) -> Any:
        """Records drawn from the model."""
        return self.steps.start(rng, given, self.chains)

    def sweep_of(self, rng: np.random.Generator, state: Any, given: Values) -> tuple[Any, float]:
        """Every record proposed anew once; the share of them that was replaced."""
        state, info = self.steps.sweep(rng, state, given)
        return state, info["accepted"] / info["tried"]

    def look_at(self, values: Values, state: Any) -> tuple[Array, Array]:
        """What is kept of the records; and, to be watched, their totals and log densities."""
        s, totals = self.state_of(state), np.asarray(state[self.name], float).reshape(self.chains, -1)
        return s, np.concatenate([totals, self.log_prob_many(values, s)], axis=1)

    @property
    def simulated_numbers(self) -> int:
        """Numbers drawn for one set of records."""
        return self.n * sum(self.widths.values())


@lru_cache(maxsize=4)
def _unfit(problem: Problem, name: str) -> str | None:
    """As `why_not_in_steps`, which simulates totals, once for all starts of a fit."""
    return why_not_in_steps(problem, name)


def worth(seen: Array) -> float:
    """Independent values that a state is worth, by the worst of the numbers `seen`: (blocks, states, chains, numbers).

    The variance of the mean comes from the spread of the chains' means, however dependent the states of a chain are.
    """
    blocks, states, chains, numbers = seen.shape
    among = np.var(seen.mean(axis=(0, 1)), axis=0, ddof=1) / chains
    single = np.var(seen.reshape(-1, numbers), axis=0)
    each = [one / (blocks * states * chains * all_of) for one, all_of in zip(single, among, strict=True) if all_of > 0]
    return float(min([1.0, *each]))


def lasts(seen: Array) -> bool:
    """Whether each chain is worth the independent values that a measurement needs; of short chains it is not known."""
    states = seen.shape[1]
    return states < LONG or worth(seen) * states >= LASTING


def drifts(seen: Array) -> bool:
    """Whether the first tenths of chains differ from their second halves by more than chance (Geweke 1992).

    The error comes from the spread between chains, so that a drift which all have in common shows.
    """
    states, chains = seen.shape[1:3]
    if states < 2:
        return False
    change = seen[:, -(states // 2) :].mean(axis=(0, 1)) - seen[:, : math.ceil(states / 10)].mean(axis=(0, 1))
    error = np.std(change, axis=0, ddof=1) / math.sqrt(chains)
    limit = -stdtrit(chains - 1, 0.5 * FALSE_ALARM / change.shape[1])
    return bool(np.any(np.abs(change.mean(axis=0)) > limit * error))


def power_of_two(number: int) -> int:
    """The largest power of two that is not above `number`; at least one."""
    return 1 << max(number, 1).bit_length() - 1
