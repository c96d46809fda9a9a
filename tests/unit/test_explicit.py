"""A library that is named by its path: whose plugin it is, and what is known of it."""

import pytest
from trees import Site, compile_library, only, plugin_bytes, world

from pjrt_hub.errors import PluginLoadError
from pjrt_hub.finding.discovery.select import choose
from pjrt_hub.finding.discovery.survey import survey


def test_an_explicit_path(tmp_path, site):
    site.plugin("other", "other")
    library = site.write("xla_cpu_pjrt.so", plugin_bytes())
    made = world(tmp_path, site, first_party=True)
    found = only(survey(made, library))
    assert (found.name, found.source, found.library_path) == ("cpu", "explicit", library)
    tpu = choose(survey(made, site.write("libtpu.so", plugin_bytes())))
    assert (tpu.candidate.name, tpu.reason) == ("tpu", "its path was given")
    assert tpu.candidate.notes[0].startswith("its hardware is absent")
    with pytest.raises(PluginLoadError, match=r"none\.so is not a file"):
        survey(made, tmp_path / "none.so")


def test_a_path_to_the_library_of_a_package_is_its_plugin(tmp_path, site):
    library = site.plugin("toy-plugin", "toy", version="1.5")
    found = only(survey(world(tmp_path, site), library))
    assert (found.name, found.source, found.library_path) == ("toy", "explicit", library)
    assert (found.distribution, found.version) == ("toy-plugin", "1.5")
    assert found.origins[0] == "the path given"
    link = tmp_path / "elsewhere.so"
    link.symlink_to(library)
    assert only(survey(world(tmp_path, site), link)).name == "toy"


def test_a_path_into_a_package_without_a_manifest_says_whose_it_is(tmp_path, site):
    library = site.vendor("acme-pjrt", "jax_plugins.acme", "pjrt_plugin_acme.so", "2.0")
    found = only(survey(world(tmp_path, site), library))
    assert (found.name, found.distribution, found.version) == ("acme", "acme-pjrt", "2.0")
    assert found.hardware.ok is None


CU12 = "$ORIGIN/../../nvidia/cuda_runtime/lib:$ORIGIN/../../nvidia/cublas/lib:"
CU13 = "$ORIGIN/../../nvidia/cu13/lib:$ORIGIN/../../nvidia/cudnn/lib:$ORIGIN/../../nvidia/nccl/lib"


@pytest.mark.parametrize(
    ("file_name", "run_path", "name", "platform", "options"),
    [
        ("xla_cuda_plugin.so", CU13, "cuda13", "cuda", True),
        ("xla_cuda_plugin.so", CU12 + "$ORIGIN/../../nvidia/cudnn/lib", "cuda12", "cuda", True),
        ("xla_cuda_plugin.so", "/usr/local/cuda/lib64", "cuda", "cuda", False),
        ("pjrt_c_api_gpu_plugin.so", "/usr/local/cuda/lib64", "gpu", "cuda", False),
        ("pjrt_c_api_gpu_plugin.so", "/opt/rocm/lib", "gpu", "rocm", False),
        ("pjrt_c_api_tpu_plugin.so", "", "tpu", "tpu", False),
    ],
)
def test_a_copy_of_a_known_plugin_is_known(tmp_path, file_name, run_path, name, platform, options):
    """Its hardware is not here, which nobody may call needless."""
    source = "const void *GetPjrtApi(void) { return 0; }"
    flags = [f"-Wl,-rpath,{run_path}"] if run_path else []
    library = compile_library(source, tmp_path / "copy" / file_name, *flags)
    found = only(survey(world(tmp_path, first_party=True), library))
    assert (found.name, found.platform, bool(found.manifest.options)) == (name, platform, options)
    assert found.hardware.ok is False
    targets = found.manifest.targets
    assert targets.known or targets.embedded == "ROCM"


@pytest.mark.parametrize("file_name", ["pjrt_c_api_gpu_plugin.so", "anything.so"])
def test_nobody_knows_the_hardware_of_an_unknown_library(tmp_path, file_name):
    library = Site(tmp_path / "copy").write(file_name, plugin_bytes())
    found = only(survey(world(tmp_path, first_party=True), library))
    assert (found.hardware.ok, bool(found.manifest.targets.known)) == (None, False)
    assert "says what hardware it needs" in found.hardware.reason


def test_xlas_own_build_for_the_cpu_needs_no_hardware(tmp_path):
    library = Site(tmp_path / "copy").write("pjrt_c_api_cpu_plugin.so", plugin_bytes())
    found = only(survey(world(tmp_path, first_party=True), library))
    assert (found.name, found.platform, found.hardware.ok) == ("cpu", "cpu", True)
    assert [option.name for option in found.manifest.options] == ["cpu_device_count"]
