"""JAX's own use cases of its primitives, from its wheel: the plugin beside JAX's CPU backend.

They are what JAX's tests of exports and of other compilers run; each says which function, with
which arguments, and where JAX itself has it not.
"""

import jax
import numpy as np
from absl.testing import absltest
from jax._src import test_util as jtu
from jax._src.internal_test_util import test_harnesses as harnesses

jax.config.parse_flags_with_absl()

#: The plugin's XLA is not jaxlib's, and adds numbers in another order.
TOLERANCE = {
    np.dtype("float16"): 1e-2,
    np.dtype("float32"): 2e-5,
    np.dtype("float64"): 1e-12,
    np.dtype("complex64"): 2e-5,
    np.dtype("complex128"): 1e-12,
}


class PrimitiveTest(jtu.JaxTestCase):
    """A test for each use case that JAX implements on this platform."""

    @harnesses.parameterized(harnesses.all_harnesses)
    @jtu.ignore_warning(category=UserWarning)
    def test_primitive(self, harness):
        """The plugin's results are those of JAX's own backend."""
        arguments = harness.dyn_args_maker(self.rng())

        def results(device):
            with jax.default_device(device):
                return jax.tree.map(np.asarray, jax.jit(harness.dyn_fun)(*arguments))

        ours, theirs = results(jax.devices()[0]), results(jax.devices("cpu")[0])
        self.assertAllClose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)


if __name__ == "__main__":
    absltest.main(testLoader=jtu.JaxTestLoader())
