"""The JSON schema of manifests takes what the readers take, and refuses what they refuse."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
from manifest_keys import key_cases
from manifest_trees import Case

from pjrt_hub.finding.contract import plain

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/spec/manifest.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
#: A schema knows no file's name and compares no two values, and takes 1.0 for an integer.
UNSAYABLE = re.compile(r"the name of its file$|within its limits$|found a float, .* int64$")
UNSAYABLE_CASE = "default: type = 'int64_list', default = [1, 2.0]"


def test_the_schema_is_a_schema():
    VALIDATOR.check_schema(SCHEMA)


@pytest.mark.parametrize("case", list(key_cases()), ids=lambda case: case.name)
def test_the_schema_agrees_with_the_readers(case: Case):
    found = plain.parse(str(case.files["m/toy.toml"]).encode())
    told = case.lines[0]
    is_unsayable = bool(UNSAYABLE.search(told)) or case.name == UNSAYABLE_CASE
    assert VALIDATOR.is_valid(found) == (told.startswith("usable ") or is_unsayable)
