"""Programs that earlier releases of JAX exported for CPUs, from its wheel, with their results.

JAX keeps them to prove that it still runs them; here the plugin runs them beside JAX's backend.
"""

import importlib
import pkgutil

import jax
import numpy as np
from absl.testing import absltest, parameterized
from jax._src import test_util as jtu
from jax._src.internal_test_util import export_back_compat_test_data as saved
from jax._src.internal_test_util import export_back_compat_test_util as compatibility

jax.config.parse_flags_with_absl()


def programs(value, name):
    """Yield each program's data in the nests of a module, with a name for its test."""
    if isinstance(value, dict) and "testdata_version" in value:
        if value["platform"] == "cpu":
            yield {"testcase_name": f"_{name}", "data": value}
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from programs(each, f"{name}_{key}")
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from programs(each, f"{name}_{number}")


def cases():
    """Yield the programs for CPUs of every module of JAX's data."""
    for module in pkgutil.iter_modules(saved.__path__):
        if not module.ispkg:
            data = vars(importlib.import_module(f"{saved.__name__}.{module.name}"))
            for name, value in data.items():
                if name.startswith("data_"):
                    yield from programs(value, f"{module.name}_{name}")


class BackCompatTest(compatibility.CompatTestBase):
    """A test for each saved program."""

    @parameterized.named_parameters(*cases())
    def test_saved(self, data):
        """The plugin's results are those of JAX's own backend."""
        data = self.load_testdata(data)
        if data.nr_devices > len(jax.devices()):
            self.skipTest(f"for {data.nr_devices} devices")
        if "tensor<?" in data.mlir_module_text or "x?" in data.mlir_module_text:
            self.skipTest("the data does not tell its symbolic dimensions")

        def results(device):
            with jax.default_device(device):
                return jax.tree.map(np.asarray, self.run_serialized(data))

        ours, theirs = results(jax.devices()[0]), results(jax.devices("cpu")[0])
        self.assertAllClose(ours, theirs, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    absltest.main(testLoader=jtu.JaxTestLoader())
