"""All cases that a reader of manifests is held against; manifest_trees.py has their form."""

from __future__ import annotations

from manifest_keys import key_cases
from manifest_places import place_cases
from manifest_texts import text_cases
from manifest_trees import Case

CASES: tuple[Case, ...] = (*text_cases(), *key_cases(), *place_cases())
