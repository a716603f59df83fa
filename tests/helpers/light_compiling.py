"""Programs that are compiled in less than half the time and run slower: most tests run one once, on a few numbers.

It is the same program in the same arithmetic; sums may be taken in another order, so results may differ in their last
bits from those that a user gets. Tests that are about every bit are marked `bits` and run without this.
"""

import importlib.util
import mmap
import os
from pathlib import Path

FLAGS = {
    "xla_backend_optimization_level": "0",
    "xla_cpu_use_fusion_emitters": "false",
    "xla_cpu_parallel_codegen_split_count": "1",
    "xla_llvm_disable_expensive_passes": "true",
}


IN_FULL = {"xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False}
"""Of programs that go through thousands of rows many times: to run them compiled lightly takes longer than to compile
them in full."""


def compile_lightly() -> None:
    """For this process and those it starts; before JAX compiles anything. XLA ends a process on a flag it has not."""
    known = [f"--{flag}={value}" for flag, value in FLAGS.items() if in_jaxlib(flag)]
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *known]).strip()
    from noisewise.samplers.proposals import collapsed

    collapsed.NO_OPTIONS, collapsed.PLAINLY = IN_FULL, collapsed.PLAINLY | IN_FULL


def in_jaxlib(flag: str) -> bool:
    """Whether the installed XLA has a flag of this name."""
    spec = importlib.util.find_spec("jaxlib")
    for library in Path(spec.origin).parent.glob("libjax_common*"):
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(flag.encode()) >= 0:
                return True
    return False
